"""The whole pipeline on a real SQLite file, on the real clock, over a real socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gesta import (
    Actor,
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    Options,
    Outcome,
    Payload,
    Rejected,
    Retry,
    RetryPolicy,
    Unknown,
)
from gesta.domain.commands import Rules
from gesta.errors import StoreFull
from gesta.flows import webhook
from gesta.runtime.settings import load
from gesta.sandbox.server import SandboxServer

SECRET = "whsec_" + "QUJD" * 8
LOOPBACK = "127.0.0.1/32"


class Note(Payload, frozen=True):
    text: str = "hello"


def engine_at(folder: Path, *flows: Flow, work: bool = True) -> Engine:
    return Engine(
        flows=flows,
        settings=load({"url": f"sqlite:///{folder}/gesta.db", "allow_private": [LOOPBACK]}),
        work=work,
    )


def note_flow(execute: Any, **options: Any) -> Flow:
    rules = Rules(
        RetryPolicy(base_seconds=0.01, cap_seconds=0.05), options.pop("on_unknown", "resend")
    )
    return Flow("walk.note", Note, execute, rules, **options)


async def say_done(payload: Note, attempt: Attempt) -> Outcome:
    return Done(id=payload.text)


async def test_created_queued_executed_recorded_projected(tmp_path):
    async with SandboxServer() as server:
        async with engine_at(
            tmp_path, webhook.flow(url=f"{server.url}/webhook/orders", secret=SECRET)
        ) as engine:
            server.sandbox.webhook.secrets = [SECRET]
            request = await engine.submit(
                webhook.Message(type="order.paid", data={"order": 7}), key="order-7"
            )
            outcome = await request.outcome(timeout=60)
            assert isinstance(outcome, Done)
            history = await engine.history(request.id)
        # R1-52, R1-1: Created → queued → executed → outcome event → projected.
        assert [name for name, _, _ in history] == [
            "notification.webhook.RequestCreated.v1",
            "notification.webhook.Sent.v1",
        ]
        assert [
            (effect.id, effect.type, effect.data) for effect in server.sandbox.webhook.effects
        ] == [(outcome.id, "order.paid", {"order": 7})]
        async with engine_at(tmp_path, webhook.flow(), work=False) as looking:
            (view,) = await looking.find(status="sent")  # R1-52
            assert (view.state.id, view.state.provider_id) == (request.id, outcome.id)
            assert await looking.admin.counts() == {("notification.webhook", "sent"): 1}


async def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_has_one_effect(tmp_path):
    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        url = f"{server.url}/http/notes"
        answer = await attempt.http.post(
            url, json={"text": payload.text}, headers={"Idempotency-Key": attempt.key}
        )
        return Done(id=answer["id"])

    async with SandboxServer() as server, engine_at(tmp_path, note_flow(execute)) as engine:
        server.sandbox.http.next(drop=True)
        server.sandbox.http.next(status=429, retry_after=0)
        request = await engine.submit(Note())
        assert isinstance(await request.outcome(timeout=60), Done)
        history = [name.split(".")[-2] for name, _, _ in await engine.history(request.id)]
    # R1-27: lost, throttled, answered.
    assert history == ["RequestCreated", "OutcomeUnknown", "OutcomeUnknown", "Completed"]
    (effect,) = server.sandbox.http.effects
    assert (effect.receipts, server.sandbox.http.calls) == (2, 3)


async def test_two_engines_on_one_file_execute_each_request_once(tmp_path):
    calls: Counter[str] = Counter()

    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        calls[payload.text] += 1
        await asyncio.sleep(0.001)
        return Done(id=payload.text)

    first, second = (engine_at(tmp_path, note_flow(execute, concurrency=4)) for _ in range(2))
    async with first, second:
        requests = await asyncio.gather(
            *((first if n % 2 else second).submit(Note(str(n))) for n in range(60))
        )
        outcomes = await asyncio.gather(*(request.outcome(timeout=60) for request in requests))
    assert sorted(outcome.id for outcome in outcomes if isinstance(outcome, Done)) == sorted(
        str(n) for n in range(60)
    )
    assert set(calls.values()) == {1}


async def test_a_request_that_one_process_accepts_is_executed_by_another(tmp_path):
    async with (
        engine_at(tmp_path, note_flow(say_done), work=False) as asking,
        engine_at(tmp_path, note_flow(say_done)),
    ):
        request = await asking.submit(Note("over there"))
        assert await request.outcome(timeout=60) == Done("over there")


async def test_nothing_is_lost_when_an_engine_is_stopped_and_started_under_load(tmp_path):
    requests = []
    for round_number in range(4):
        async with engine_at(tmp_path, note_flow(say_done)) as engine:
            requests += await asyncio.gather(
                *(engine.submit(Note(f"{round_number}-{n}")) for n in range(100))
            )
    async with engine_at(tmp_path, note_flow(say_done)) as engine:
        for request in requests:
            handle = await engine.request(request.id)
            assert isinstance(await handle.outcome(timeout=60), Done)
        # Stopped in order, so nothing was ever unknown.
        assert {(await engine.get(request.id)).state.attempts for request in requests} == {1}


async def test_views_folded_live_are_the_views_folded_from_the_file(tmp_path):
    """The live fold is handed decoded events; the rebuild reads what was stored."""
    endings: list[Outcome] = [
        Done(id="p", target="t", detail="d"),
        Rejected("no", "detail"),
        Retry("busy", after_seconds=0.01),
        Unknown("lost"),
    ]

    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        return endings[int(payload.text) % 4] if attempt.number == 1 else Done()

    async with engine_at(tmp_path, note_flow(execute)) as engine:
        options = Options(
            ttl=timedelta(hours=1), priority=2, correlation_id="c", actor=Actor("u", ("r",))
        )
        requests = [
            one
            for one in await engine.submit_many([(Note(str(n)), options) for n in range(20)])
            if not isinstance(one, Conflict)
        ]
        for request in requests:
            await request.outcome(timeout=60)
        await requests[1].redrive(actor=Actor("u"))
        await requests[1].outcome(timeout=60)
    async with engine_at(tmp_path, note_flow(execute), work=False) as engine:
        before = await engine.find(limit=100)
        assert {view.state.status for view in before} == {"completed", "failed"}
        await engine.admin.rebuild()
        assert await engine.find(limit=100) == before  # G5


def database_of(engine: Engine) -> Any:
    return engine.pipeline.environment.stores.close.__self__  # type: ignore[attr-defined]


async def limit_pages(engine: Engine, pages: int) -> None:
    """The disk has so many pages from now on; a number below what is used leaves no room at all."""
    await database_of(engine).write(
        lambda db: db.execute(f"pragma max_page_count = {pages}").fetchall(), durable=False
    )


async def fill_the_last_page(engine: Engine) -> None:
    """Raises StoreFull in the end: then nothing of this size has room. None of these is due
    soon.
    """
    while True:
        await engine.submit(Note("x" * 200), deliver_at=datetime.now(UTC) + timedelta(days=1))


async def test_a_full_disk_refuses_clearly_and_work_goes_on_when_there_is_room(tmp_path):
    async with engine_at(tmp_path, note_flow(say_done)) as engine:
        await limit_pages(engine, 1)
        with pytest.raises(StoreFull, match=r"no room left .* nothing was written"):
            await engine.submit(Note("x" * 20_000), key="k-1")
        with pytest.raises(StoreFull):
            await engine.submit_many([Note("x" * 20_000)] * 3)
        assert await engine.pipeline.environment.stores.events.follow(0, 10) == []
        await limit_pages(engine, 100_000)
        request = await engine.submit(Note("x" * 20_000), key="k-1")
        assert request.verdict == "created"
        assert isinstance(await request.outcome(timeout=60), Done)


async def test_an_outcome_learned_while_the_disk_was_full_is_recorded_afterwards(tmp_path):
    calls, reached, go_on = [], asyncio.Event(), asyncio.Event()

    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        calls.append(attempt.number)
        reached.set()
        await go_on.wait()
        return Done(id="known only to us", detail="x" * 20_000)

    # `park`: forgetting it would leave an unknown for a person to resolve.
    async with engine_at(tmp_path, note_flow(execute, on_unknown="manual")) as engine:
        request = await engine.submit(Note())
        await reached.wait()
        await limit_pages(engine, 1)
        with pytest.raises(StoreFull):
            await fill_the_last_page(engine)
        go_on.set()
        while engine.pipeline.pool._deadlines._ends:
            # The call has not come back yet.
            await asyncio.sleep(0.01)
        assert await request.status() == "queued"
        await limit_pages(engine, 100_000)
        outcome = await request.outcome(timeout=60)
        assert isinstance(outcome, Done)
        assert outcome.id == "known only to us"
    assert calls == [1]
