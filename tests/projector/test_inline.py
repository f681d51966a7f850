"""What a process appends is projected in the same commit while it stands at the end of the log;
whatever lies between, nothing is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partialmethod

import pytest

from gesta import Conflict, Done, Engine, Options, Request, Retry
from gesta.engine.environment import Environment, Wiring
from gesta.errors import StoreError
from gesta.ports.stores import Stores
from gesta.ports.transactions import Projection
from gesta.projector.inline import InlineProjection
from gesta.projector.projector import WORTH_IT, Projector
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.settings import Settings
from tests.world import (
    FLOW,
    URL,
    Gate,
    Note,
    Ports,
    Provider,
    engine_of,
    let_run,
    note_flow,
    pass_time,
    types_of,
)

#: The code as it is.
BEGIN = InlineProjection.__init__


@pytest.fixture
def inline(ports: Ports) -> Iterator[list[str]]:
    """Commits that project, of every engine opened from here on; the calls that could."""
    before, seen = Wiring.wire, []

    async def wire(settings: Settings) -> Environment:
        environment = await before(settings)

        async def append(original, appends, projection):
            verdicts = await original(appends, projection)
            seen.append("at once" if projection.reached is not None else "left")
            return verdicts

        async def project(original, views, jobs, quarantined, moves, free_slots):
            seen.append("projector")
            return await original(views, jobs, quarantined, moves, free_slots)

        ports.transactions.replace("append", append)
        ports.transactions.replace("project", project)
        return replace(environment, stores=replace(environment.stores, projects_inline=True))

    Wiring.wire = staticmethod(wire)
    yield seen
    Wiring.wire = staticmethod(before)


async def test_a_request_is_in_the_views_when_it_is_accepted(gesta, inline):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        request = await engine.submit(Note())
        assert [view.state.id for view in await engine.find(status="queued")] == [request.id]
        await let_run(gesta)
        assert [view.state.id for view in await engine.find(status="completed")] == [request.id]
        assert inline == ["at once"]


async def test_a_retry_and_its_end_reach_the_views(gesta, inline):
    """Neither is the usual end of an attempt."""
    async with engine_of(Provider(Retry("busy"), Done(id="p-1"))) as engine:
        await let_run(gesta)
        seen: list[tuple[int, str]] = []
        engine.pipeline.projector.listen(
            lambda views: seen.extend([(view.state.version, view.state.status) for view in views])
        )
        await engine.submit(Note())
        await gesta.settle()
        assert seen == [(1, "queued"), (2, "queued"), (3, "completed")]


async def test_events_of_another_process_are_projected_and_inline_projection_resumes(gesta, inline):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        async with Engine(URL, flows=[note_flow(Provider())], work=False) as other:
            theirs, ours = await asyncio.gather(
                other.submit(Note("theirs")), engine.submit(Note("ours"))
            )
        assert "left" in inline
        await pass_time(gesta, 1)
        assert {view.state.id for view in await engine.find(status="completed")} == {
            theirs.id,
            ours.id,
        }
        inline.clear()
        await engine.submit(Note())
        assert inline == ["at once"]
        await let_run(gesta)
    assert sorted(payload.text for payload in provider.payloads) == ["hello", "ours", "theirs"]


async def test_a_batch_with_a_key_that_is_taken_is_left_to_the_projector(gesta, inline):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        first = await engine.submit(Note("first"), key="k")
        await let_run(gesta)
        answers = await engine.submit_many(
            [(Note("other"), Options(key="k")), (Note("new"), Options(key="n"))]
        )
        assert isinstance(answers[0], Conflict)
        assert isinstance(answers[1], Request)
        await let_run(gesta)
        assert {view.state.id for view in await engine.find(status="completed")} == {
            first.id,
            answers[1].id,
        }


async def test_an_outcome_projected_while_positions_are_read_wakes_its_waiter(gesta, inline, ports):
    """It was not: its waiter waited for ever."""
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        projector, reported = engine.pipeline.projector, []
        projector.listen(lambda views: reported.extend([view.state.status for view in views]))

        async def forget(original, appends, projection):
            verdicts = await original(appends, projection)
            # As after some seconds without anything to do, or an error of the store.
            projector._positions = None
            return verdicts

        ports.transactions.replace("append", forget)
        await engine.submit(Note())
        await let_run(gesta)
        assert reported == ["queued", "completed"]


async def test_an_append_whose_answer_was_lost_is_looked_for(gesta, inline, ports):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)

        async def lose(original, appends, projection):
            await original(appends, projection)
            projection.reached = None
            raise StoreError("the answer was lost")

        ports.transactions.replace("append", lose)
        with pytest.raises(StoreError, match="the answer was lost"):
            await engine.submit(Note(), key="k")
        ports.transactions.heal()
        await pass_time(gesta, 2)
        (view,) = await engine.find()
        assert (view.state.status, view.state.key) == ("completed", "k")
        assert (await engine.submit(Note(), key="k")).verdict == "duplicate"
        assert await engine.admin.counts() == {(FLOW, "completed"): 1}


async def test_steady_traffic_stays_inline(gesta, inline):
    """It did not: after some seconds the place was read anew, and while appends came one after the
    other no process saw the end of the log again.
    """
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        for _ in range(40):
            await engine.submit(Note())
            await pass_time(gesta, 0.25)
        assert set(inline) == {"at once"}
        assert len(inline) == 40


@pytest.mark.parametrize("projects_inline", [True, False])
async def test_events_of_another_process_are_projected_although_our_append_fails(
    gesta, inline, ports, monkeypatch, projects_inline
):
    """It lay for a second: what was passed over because of our own append was not looked for when
    that had failed.
    """
    monkeypatch.setattr(InlineProjection, "__init__", partialmethod(_possible, projects_inline))
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        ours, failing = ports, asyncio.Event()

        async def fail(_original, *_):
            await failing.wait()
            raise StoreError("out of reach")

        ours.transactions.replace("append", fail)
        ours.events.replace("append", fail)
        waiting = spawn(engine.submit(Note("ours")), "ours")
        await let_run(gesta)
        async with Engine(URL, flows=[note_flow(Provider())], work=False) as other:
            theirs = await other.submit(Note("theirs"))
        await pass_time(gesta, 0.25)
        if not projects_inline:
            # Nothing has to be passed over where nothing is projected at once.
            assert [view.state.id for view in await engine.find()] == [theirs.id]
        failing.set()
        with pytest.raises(StoreError, match="out of reach"):
            await waiting
        await pass_time(gesta, 0.25)
        assert [view.state.id for view in await engine.find(status="completed")] == [theirs.id]


def _possible(
    self: InlineProjection, projects_inline: bool, stores: Stores, projector: Projector
) -> None:
    BEGIN(self, replace(stores, projects_inline=projects_inline), projector)


async def test_appends_without_a_pause_come_back_to_it(gesta, inline, ports):
    """They did not: one is always on its way when the end of the log is seen."""
    async with engine_of(Provider()) as engine:
        await let_run(gesta)

        async def slow(original, *given):
            await sleep(gesta.runtime, 0.01)
            answer = await original(*given)
            await sleep(gesta.runtime, 0.01)
            if len(given) > 1:
                inline.append("left" if given[1].reached is None else "at once")
            return answer

        for port, verb in (
            (ports.transactions, "append"),
            (ports.events, "append"),
            (ports.transactions, "record"),
        ):
            port.replace(verb, slow)

        async def submit_for_ever() -> None:
            while True:
                await engine.submit(Note())

        tasks = [spawn(submit_for_ever(), "one") for _ in range(2)]
        await pass_time(gesta, 0.2, 0.004)
        engine.pipeline.projector.landed(None)
        engine.pipeline.projector.sent()
        await pass_time(gesta, 3, 0.004)
        inline.clear()
        await pass_time(gesta, 0.5, 0.004)
        seen = set(inline)
        for task in tasks:
            task.cancel()
        ports.transactions.heal()
        ports.events.heal()
        await pass_time(gesta, 1, 0.01)
        assert seen == {"at once"}


def watch_reads(ports: Ports) -> list[str]:
    """The streams that are read from here on."""
    streams: list[str] = []

    async def read(original, wanted):
        streams.extend(stream for stream, _ in wanted)
        return await original(wanted)

    ports.events.replace("read", read)
    return streams


async def test_a_request_that_is_taken_as_it_is_made_is_not_read_again_and_one_that_waited_is(
    gesta, inline, ports
):
    gate = Gate()
    async with engine_of(Provider(gate), concurrency=1) as engine:
        await let_run(gesta)
        streams = watch_reads(ports)
        leased = await engine.submit(Note("taken as it is made"))
        await let_run(gesta)
        assert [stream for stream in streams if leased.id in stream] == []
        waiting = await engine.submit(Note("waiting"))
        await let_run(gesta)
        gate.opened.set()
        await let_run(gesta)
        # Whatever has happened to it since: the stream says.
        assert len([stream for stream in streams if waiting.id in stream]) == 1  # S0-26
        assert [view.state.id for view in await engine.find(status="completed")] == [
            waiting.id,
            leased.id,
        ]


async def test_a_batch_with_a_request_that_is_due_much_later_is_taken_as_it_is_made(gesta, inline):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        late = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000, UTC) + timedelta(days=1)
        await engine.submit_many(
            [(Note("late"), Options(deliver_at=late)), (Note("now"), Options())]
        )
        assert inline[-1] == "at once"
        await let_run(gesta)
        assert [view.state.status for view in await engine.find()] == ["completed", "queued"]
    assert len(provider.calls) == 1


async def test_a_pause_of_another_process_holds_what_is_taken_as_it_is_made(gesta, inline):
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        async with Engine(URL, flows=[note_flow(Provider())], work=False) as other:
            await other.admin.pause(flow=FLOW)
            await pass_time(gesta, 1)
        request = await engine.submit(Note())
        assert inline[-1] == "at once"
        await let_run(gesta)
        assert provider.calls == []
        await engine.admin.resume(flow=FLOW)
        await let_run(gesta)
        assert await request.status() == "completed"


async def test_a_request_leased_as_it_was_created_is_read_again_if_it_had_to_wait(
    gesta, inline, ports
):
    """It was cancelled while the store was out of reach for its worker, and sent all the same."""
    provider = Provider()
    async with engine_of(provider) as engine:
        await let_run(gesta)
        events = ports.events
        async with Engine(URL, flows=[note_flow(Provider())], work=False) as other:

            async def fail(_original, *_wanted):
                raise StoreError("out of reach")

            events.replace("read", fail)
            request = await engine.submit(Note())
            await let_run(gesta)
            assert inline == ["at once"]
            await pass_time(gesta, 2, 0.25)
            assert provider.calls == []
            events.heal()
            await (await other.request(request.id)).cancel()
            await pass_time(gesta, 3, 0.25)
            assert await (await other.request(request.id)).status() == "cancelled"
    assert provider.calls == []


async def test_beside_a_process_that_appends_all_the_time_appends_are_held_less_and_less_often(
    gesta, inline
):
    async with engine_of(Provider()) as engine:
        await let_run(gesta)
        projector, now = engine.pipeline.projector, gesta.runtime.monotonic

        def holds_for(seconds: int) -> list[float]:
            """When appends were held back, with one of ours always on its way and another's always
            in between.
            """
            holds = []
            for _ in range(seconds * 4):
                gesta.runtime.advance(0.25)
                projector.sent()
                projector._reach_end(None)
                if projector._held_at == now():
                    holds.append(now())
                projector.landed(None)
            return holds

        first, *_ = holds = holds_for(20)
        assert [at - first for at in holds] == [0, 2, 6, 14]
        projection = Projection([], [], {})
        projection.reached = 0
        for _ in range(WORTH_IT):
            # They were alone for a while.
            projector.sent()
            projector.landed(projection)
        last, second, third = holds_for(24)[:3]
        assert (second - last, third - second) == (1, 2)


async def test_a_request_leased_as_it_was_created_is_read_again_if_the_answer_was_late(
    gesta, inline, ports
):
    """Its lease had ended and the same process had recorded it as unknown; then it was called all
    the same (SEED=51004003).
    """
    provider = Provider()
    async with engine_of(provider, on_unknown="manual") as engine:
        await let_run(gesta)

        async def late(original, *given):
            answer = await original(*given)
            await sleep(gesta.runtime, 6)
            return answer

        ports.transactions.replace("append", late)
        submitting = spawn(engine.submit(Note()), "submit")
        await pass_time(gesta, 8, 0.25)
        request = await submitting
        assert await types_of(engine, request.id) == ["RequestCreated", "OutcomeUnknown"]
    assert provider.calls == []
