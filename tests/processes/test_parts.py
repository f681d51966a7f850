"""Projectors, workers and sweepers as processes of their own on one file: killed, stopped under
load, and each with flows of its own.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from gesta import Engine, Request
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.leases import LEASE_SECONDS, RENEWAL_SECONDS
from gesta.projector.partitions import CHECKPOINT
from tests.processes.members import PATIENCE_SECONDS, Lines
from tests.processes.parts import (
    PROJECTOR,
    SWEEPER,
    WORKER,
    is_played,
    parts,
    player,
    until,
)
from tests.processes.program import ENDLESS_SECONDS, Card, Fax, Mail, engine_on

#: What the issue promises: another process takes over this soon.
TAKEOVER_SECONDS = 5.0


async def names(engine: Engine, request: Request) -> list[str]:
    """The names of a request's events."""
    return [name.split(".")[-2] for name, _, _ in await engine.history(request.id)]


async def is_at_rest(request: Request) -> bool:
    state = (await request.view()).state
    return state.is_terminal or (state.status == "unknown" and state.due_at is None)


async def all_at_rest(requests: list[Request]) -> None:
    for request in requests:
        await until(partial(is_at_rest, request), f"the end of {request}")


async def has_begun(lines: Lines, n: int) -> bool:
    return any(line["n"] == n for line in lines.of("effect"))


def calls(lines: Lines) -> Counter[int]:
    return Counter(line["n"] for line in lines.of("effect"))


@pytest.mark.slow
async def test_of_two_of_each_kind_one_is_killed_and_nothing_is_lost_or_doubled(tmp_path):
    # By the clock of the store: a waiting process looks once in RENEWAL_SECONDS whether the lease
    # has ended.
    assert LEASE_SECONDS + RENEWAL_SECONDS < TAKEOVER_SECONDS
    lines, accepted = Lines(tmp_path), list[Request]()
    with parts(tmp_path) as start:
        pairs = {
            part: [start(*arguments, app="brisk") for _ in range(2)]
            for part, arguments in {
                "projector": PROJECTOR,
                "sweeper": SWEEPER,
                "worker": (*WORKER, "--flow", "pay.*", "--flow", "note.mail"),
            }.items()
        }
        for one in (one for pair in pairs.values() for one in pair):
            one.hear("ready; press Ctrl-C to stop")
        async with engine_on(tmp_path) as engine:
            submitting = asyncio.ensure_future(submit(engine, accepted))
            # One of the two may get everything: all look at the file in the same rhythm.
            await until(lambda: is_worked(lines), "a worker to work")
            for part, role in (("projector", CHECKPOINT), ("sweeper", SWEEP)):
                await until(
                    partial(is_played, engine, role, *(one.pid for one in pairs[part])),
                    f"a {part} at work",
                )
                playing = await player(engine, role)
                victim, heir = sorted(pairs[part], key=lambda one: one.pid != playing)
                victim.kill()
                await until(
                    partial(is_played, engine, role, heir.pid), f"another {part} to take over"
                )
                if part == "sweeper":
                    # No worker executes faxes, so that only a sweep ends it.
                    fax = await engine.submit(Fax(-1), ttl=timedelta(seconds=0.2))
                    await until(partial(is_expired, fax), "the other sweeper to sweep")
            busy = list(lines.of("effect"))[-1]["pid"]
            next(one for one in pairs["worker"] if one.pid == busy).kill()
            count = len(accepted)
            await until(lambda: more_than(accepted, count + 50), "some more requests")
            submitting.cancel()
            await all_at_rest(accepted)
            done = calls(lines)
            for n, request in enumerate(accepted):
                status = await request.status()
                if n % 2:
                    # Under one key, which the receiver remembers.
                    assert status == "completed"
                else:
                    # What was under way when its worker was killed is unknown, and nothing
                    # else does.
                    assert (status, done[n]) in {("completed", 1), ("unknown", 0), ("unknown", 1)}
            # From one reading: what was submitted as the submitter was cancelled may still be done.
            keys = {(line["n"], line["key"]) for line in lines.of("effect")}
            assert len(keys) == len({n for n, _ in keys})
        survivors = [
            one for pair in pairs.values() for one in pair if one.process.returncode is None
        ]
        assert [one.end() for one in survivors] == [0, 0, 0]


async def submit(engine: Engine, accepted: list[Request]) -> None:
    while True:
        n = len(accepted)
        accepted.append(await engine.submit(Mail(n) if n % 2 else Card(n), key=str(n)))
        await asyncio.sleep(0.005)


async def is_worked(lines: Lines) -> bool:
    return any(lines.of("effect"))


async def more_than(accepted: list[Request], count: int) -> bool:
    return len(accepted) > count


async def is_expired(request: Request) -> bool:
    return await request.status() == "expired"


@pytest.mark.slow
async def test_a_worker_stopped_under_load_finishes_running_attempts_and_releases_the_rest(
    tmp_path,
):
    """After an unknown outcome a person would have to decide about these: one that was taken and
    forgotten would be seen.
    """
    lines = Lines(tmp_path)
    with parts(tmp_path) as start:
        others = [start(*PROJECTOR), start(*SWEEPER)]
        async with engine_on(tmp_path) as engine:
            answers = await engine.submit_many([Card(n, seconds=0.2) for n in range(100)])
            requests = [one for one in answers if isinstance(one, Request)]
            exits = []
            for n in range(3):
                worker = start(*WORKER)
                await until(partial(has_called, lines, 8 + n * 20), "the worker to work")
                exits.append(worker.end())
                assert "stopped" in worker.said
            # A process that stops while there is much to do leaves most of it.
            assert len(calls(lines)) < len(requests)
            last = start(*WORKER)
            await all_at_rest(requests)
            # One attempt each, by the events: none was spent on what had not begun, and nothing is
            # unknown.
            found = [await names(engine, request) for request in requests]
        assert found == [["RequestCreated", "Completed"]] * len(requests)
        assert calls(lines) == Counter(range(100))
        assert [*exits, *(one.end() for one in (*others, last))] == [0] * 6


async def has_called(lines: Lines, count: int) -> bool:
    return len(lines.of("effect")) >= count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("worker", "awaits"),
        ("worker", "swallows"),
        ("worker", "blocks"),
        ("worker", "in a thread"),
        ("serve", "swallows"),
    ],
)
async def test_whatever_an_executor_does_the_process_exits_with_0_and_the_request_is_unknown(
    tmp_path, command, how
):
    with parts(tmp_path) as start:
        process = start(*(WORKER if command == "worker" else ("serve",)), app="hurried")
        other = start(*PROJECTOR)
        async with engine_on(tmp_path) as engine:
            request = await engine.submit(Card(1, seconds=ENDLESS_SECONDS, how=how))
            await until(partial(has_begun, Lines(tmp_path), 1), "the call")
            assert process.end() == 0
            if how != "blocks":
                assert await names(engine, request) == ["RequestCreated", "OutcomeUnknown"]
            successor = start(*WORKER)
            successor.hear("ready")
            await all_at_rest([request])
            assert await request.status() == "unknown"
        assert (successor.end(), other.end()) == (0, 0)
    assert calls(Lines(tmp_path)) == {1: 1}


@pytest.mark.slow
async def test_a_second_signal_ends_at_once_and_the_next_worker_records_unknown(tmp_path):
    with parts(tmp_path) as start:
        start(*PROJECTOR)
        worker = start(*WORKER, app="brisk")
        async with engine_on(tmp_path) as engine:
            request = await engine.submit(Card(1, seconds=ENDLESS_SECONDS))
            await until(partial(has_begun, Lines(tmp_path), 1), "the call")
            worker.process.send_signal(signal.SIGINT)
            worker.hear("running attempts that finish first: 1 (Ctrl-C kills them)")
            worker.process.send_signal(signal.SIGINT)
            assert worker.process.wait(PATIENCE_SECONDS) == -signal.SIGINT
            start(*WORKER)
            await all_at_rest([request])
            assert await names(engine, request) == ["RequestCreated", "OutcomeUnknown"]


@pytest.mark.slow
async def test_workers_take_their_flows_only(tmp_path):
    lines = Lines(tmp_path)
    with parts(tmp_path) as start:
        start(*PROJECTOR)
        paying = start(*WORKER, "--flow", "pay.*")
        writing = start(*WORKER, "--flow", "note.mail")
        paying.hear("flows: pay.card\n")
        writing.hear("flows: note.mail\n")
        async with engine_on(tmp_path) as engine:
            requests = [await engine.submit(Mail(n) if n % 2 else Card(n)) for n in range(40)]
            await all_at_rest(requests)
            flow_and_pid = {(line["flow"], line["pid"]) for line in lines.of("effect")}
            assert flow_and_pid == {("pay.card", paying.pid), ("note.mail", writing.pid)}
            # A job without a worker waits until one starts.
            assert paying.end() == 0
            card, mail = await engine.submit(Card(100)), await engine.submit(Mail(101))
            await all_at_rest([mail])
            assert await card.status() == "queued"
            last = start(*WORKER, "--flow", "pay.card")
            await all_at_rest([card])
            assert {line["pid"] for line in lines.of("effect") if line["n"] == 100} == {last.pid}
    assert calls(lines) == Counter([*range(40), 100, 101])


@pytest.mark.slow
def test_an_undeclared_flow_error_lists_the_declared_flows(tmp_path):
    with parts(tmp_path) as start:
        worker = start("worker", "--flow", "pay.*", "--flow", "payment.*")
        assert worker.process.wait(PATIENCE_SECONDS) == 2
        assert (
            worker.said
            == "error: no flow 'payment.*' is registered with this engine; it has: note.fax,"
            " note.mail, pay.card\n"
        )
    assert not Path(tmp_path / "gesta.db").exists()
