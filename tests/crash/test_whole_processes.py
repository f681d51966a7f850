"""Lines of the matrix that are no point of one process: emptied stores, two of everything at once,
clocks that differ.
"""

from __future__ import annotations

import random
from typing import Any

import apsw
import pytest

from gesta.domain.ids import job_id
from tests.crash.points import NOT_CALLED
from tests.crash.stage import check_promises, kind_of, number_of, stage

FIRST = tuple(range(12))
MORE = tuple(range(100, 118))
LAYOUTS = ["together", "separate"]


def empty(url, *tables):
    """As these are when they were lost."""
    db = apsw.Connection(url.removeprefix("sqlite:///"))
    db.set_busy_timeout(10_000)
    db.execute(f"begin immediate; {' '.join(f'delete from {table};' for table in tables)} commit")
    db.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "queue_lost", [False, True], ids=["views emptied", "views and queue emptied"]
)
async def test_emptied_views_and_a_lost_queue_are_made_again(
    tmp_path, crash_seed, layout, queue_lost
):
    dice = random.Random(crash_seed)
    # All that the events show, or the requests alone.
    lost = dice.choice((("requests", "checkpoints", "roles"), ("requests",)))
    async with stage(tmp_path, crash_seed, layout=layout, lost_ms=400) as on:
        with on.process(point="taken, not called", nth=dice.randint(4, 9), numbers=FIRST) as child:
            victims = await on.victims(child)
        async with on.look() as engine:
            while await engine.pipeline.projector.step():
                pass
            before = await on.states(engine)
            sent = {state.id for state in before.values() if state.status == "completed"}
            calls = {number_of(before[one]): list(on.calls[number_of(before[one])]) for one in sent}
            # Put and taken, but the relay died before it could forget them: they are put again, and
            # no record of the first time exists.
            names = {job_id(victim, before[victim].dispatch_version): victim for victim in victims}
            undispatched = engine.pipeline.environment.stores.undispatched_jobs
            assert undispatched is not None
            left = (
                {names[name] for name in await undispatched.find_undispatched([*names])}
                if queue_lost
                else set()
            )
            if queue_lost:
                empty(on.plan.settings().queue_url or on.plan.settings().url, "jobs", "leases")
            empty(on.plan.settings().url, *lost)
            assert await on.states(engine) == {}
            await engine.admin.rebuild()
            assert await on.states(engine) == before  # K-11
            with on.process():
                states = await on.at_rest(engine, at_least=len(before))
            # K-11: nothing that had ended was called again, and each of the others once.
            assert {number: on.calls[number] for number in calls} == calls
            assert [
                number for number, times in on.calls.items() if len(times) > 1 and number % 3
            ] == []
            await check_promises(on, engine, states)
        effects = on.effects()
        for victim in victims:
            status, count, _ = (
                NOT_CALLED[kind_of(states[victim])]
                if victim not in left
                else ("completed", 1, None)
            )
            assert (states[victim].status, effects[number_of(states[victim])]) == (status, count)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_two_of_everything_at_once_do_each_thing_once(tmp_path, crash_seed, layout):
    """Two processes that project, relay and sweep as if they were alone, after a third one died."""
    dice = random.Random(crash_seed)
    # Leases as in production: on a machine that stands still for a second a shorter one is lost,
    # and a second attempt would be right.
    async with stage(tmp_path, crash_seed, layout=layout, lease_seconds=4.0) as on:
        with on.process(point="taken, not called", nth=dice.randint(1, 6), numbers=FIRST) as child:
            victims = await on.victims(child)
        # The same keys in both: of each pair one is created, the other gets its id.
        with (
            on.process(greedy=True, numbers=MORE),
            on.process(greedy=True, numbers=MORE, seed=crash_seed + 1),
        ):
            async with on.look() as engine:
                states = await on.at_rest(engine, at_least=len(MORE) + len(victims))
        # Killed in the middle, one of two relays may have put a job once more whose request was
        # done meanwhile. It leads nowhere, and the worker that
        # works next clears it away.
        with on.process():
            async with on.look() as engine:
                assert await on.at_rest(engine) == states
        async with on.look() as engine:
            await check_promises(on, engine, states)
        fresh = [state for state in states.values() if number_of(state) in MORE]
        effects = on.effects()
    assert len(fresh) == len(MORE)
    # K-13: one dispatch, so one attempt and one call each; one recovery of what the dead one left.
    assert {(state.status, state.attempts, len(on.calls[number_of(state)])) for state in fresh} == {
        ("completed", 1, 1)
    }
    for victim in victims:
        end = (
            states[victim].status,
            effects[number_of(states[victim])],
            len(on.calls[number_of(states[victim])]),
        )
        assert end == NOT_CALLED[kind_of(states[victim])]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ahead_ms", [300_000, -300_000], ids=["ahead", "behind"])
async def test_a_clock_that_is_wrong_takes_nothing_early_and_expires_nothing(
    tmp_path, crash_seed, ahead_ms, layout
):
    """Two processes work on everything; a look at a lease or a time by the wrong clock would take
    what the other holds, at once.
    """
    plan = {"lease_seconds": 4.0, "call_seconds": 0.4, "deliver_in_seconds": 1.5, "ttl_seconds": 60}
    async with stage(tmp_path, crash_seed, layout=layout, **plan) as on:
        with on.process(numbers=FIRST), on.process(numbers=MORE, ahead_ms=ahead_ms):
            async with on.look() as engine:
                states = await on.at_rest(engine, at_least=len(FIRST) + len(MORE))
        async with on.look() as engine:
            await check_promises(on, engine, states)
            created: dict[str, Any] = {
                one.id: (await engine.history(one.id, flow=one.flow))[0][1]
                for one in states.values()
            }
    # K-14: no early claim: no worker leased what another held, and nothing was called before its
    # time. Nothing expired.
    assert {
        (state.status, state.attempts, len(on.calls[number_of(state)])) for state in states.values()
    } == {("completed", 1, 1)}
    assert [
        state.id
        for state in states.values()
        if on.calls[number_of(state)][0] < created[state.id].deliver_at
    ] == []
