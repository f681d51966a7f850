"""When the next take follows: at once where the queue may have more, otherwise after a notification
or the next job falls due.
"""

from __future__ import annotations

import pytest

from gesta.ports.job_queue import Job, LeasedJob
from gesta.worker.pool import (
    CLOCK_PAUSE_SECONDS,
    POLL_SECONDS,
    may_have_more,
    pause_seconds,
)
from tests.world import Note, Provider, engine_of, let_run, take_the_long_way

NOW = 1_000_000


def leased(flow: str, count: int) -> list[LeasedJob]:
    return [
        LeasedJob(Job(f"{flow}-{n}", "default", flow, f"{n}", 1), "token", 1, NOW)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("came", "next_due_ms", "more"),
    [
        ([], None, False),
        ([], NOW - 1, False),
        (leased("a", 7), None, False),
        (leased("a", 7), NOW + 1, False),
        (leased("a", 8), None, True),
        (leased("a", 7) + leased("b", 2), None, True),
        # A wave of retries that is more than a queue wakes at once.
        (leased("a", 7), NOW, True),
    ],
)
def test_a_take_is_followed_by_another_only_where_the_queue_may_have_left_something(
    came, next_due_ms, more
):
    assert may_have_more({"a": 8, "b": 2}, came, next_due_ms, NOW) is more


@pytest.mark.parametrize(
    ("next_due_ms", "seconds"),
    [
        (None, POLL_SECONDS),
        (NOW + 500, 0.5),
        (NOW + 60_000, POLL_SECONDS),
        (NOW - 500, CLOCK_PAUSE_SECONDS),
    ],
)
def test_the_next_take_waits_until_the_next_job_falls_due(next_due_ms, seconds):
    assert pause_seconds(next_due_ms, NOW, NOW) == seconds


async def test_a_request_that_is_alone_is_found_by_one_take(gesta, ports, monkeypatch):
    provider, found = Provider(), []
    async with engine_of(provider) as engine:
        take_the_long_way(engine)
        await let_run(gesta)
        take = engine.pipeline.pool._queue.take

        async def counted(*args, **options):
            answer = await take(*args, **options)
            if not provider.calls:
                found.append(len(answer[0]))
            return answer

        monkeypatch.setattr(engine.pipeline.pool._queue, "take", counted, raising=False)
        await engine.submit(Note())
        await let_run(gesta)
    assert found == [1]
