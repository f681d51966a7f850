"""Death at every moment, and a store that fails at every single call.

Each call to a store takes a turn of the loop before and a turn after its effect, so that a process
can die in any of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gesta import Attempt, Done, Engine, Outcome, Retry, Unknown
from gesta.domain.outcome import UnknownPolicy
from gesta.errors import StoreError
from gesta.testing.plugin import Harness
from tests.world import Note, Provider, die, engine_of, pass_time, result

#: More turns than a whole life takes, retries included.
MOMENTS_MAX = 400


class World:
    """A provider that throttles the first attempt and has its effect in the second; it can be asked
    what it did.
    """

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()

    async def execute(self, payload: Note, attempt: Attempt) -> Outcome:
        await asyncio.sleep(0)
        if attempt.number == 1:
            return Retry("throttled")
        self.effects[attempt.key] += 1
        await asyncio.sleep(0)
        return Done(id="p-1")

    async def ask(self, payload: Note, attempt: Attempt) -> Outcome:
        await asyncio.sleep(0)
        return Done(id="p-1") if attempt.key in self.effects else Retry("no_trace")


def engine_in(world: World, url: str, policy: UnknownPolicy, *, journal: bool) -> Engine:
    provider, asked = Provider(*[world.execute] * 50), Provider(*[world.ask] * 50)
    reconcile = asked if policy == "reconcile" else None
    return engine_of(provider, url, on_unknown=policy, reconcile=reconcile, journal=journal)


async def live(gesta: Harness, engine: Engine, turns: int) -> bool:
    """Start, submit and work for so many turns, moving the clock; whether the request came to its
    end before that.
    """
    await engine.start()
    asking = asyncio.ensure_future(engine.submit(Note(), key="k"))
    for turn in range(turns):
        await asyncio.sleep(0)
        if turn % 7 == 6:
            gesta.advance(0.25)
    is_over = asking.done() and await result(asking.result()) is not None
    asking.cancel()
    return is_over


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize(
    "policy",
    [
        "resend",
        *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("reconcile", "manual")),
    ],
)
async def test_a_process_may_die_at_any_moment(gesta, calls, policy, journal):
    is_over, turns = False, 0
    while not is_over:
        assert turns < MOMENTS_MAX
        world, url = World(), f"memory:{turns}"
        dying = engine_in(world, url, policy, journal=journal)
        is_over = await live(gesta, dying, turns)
        await die(dying)
        async with engine_in(world, url, policy, journal=journal) as engine:
            # Accepted or not when it died: the same key leads to one request.
            request = await engine.submit(Note(), key="k")
            # The dead one's leases have to end first.
            await pass_time(gesta, 6)
            await gesta.settle()
            outcome = await result(request)
            (view,) = await engine.find()
            assert view.state.id == request.id
            assert await engine.admin.quarantined() == []
        if policy == "manual":
            # Never twice: what a death left unknown is visibly unknown.
            assert sum(world.effects.values()) <= 1, turns
            assert outcome == Done("p-1") or isinstance(outcome, Unknown), turns
            assert outcome != Done("p-1") or sum(world.effects.values()) == 1, turns
        else:
            assert outcome is not None, turns
            assert isinstance(outcome, Done), (turns, outcome)
            # One key, however often it was sent: one effect where the provider dedupes by it.
            assert len(world.effects) == 1, turns
            # K-6, K-7, K-8: where the provider can be asked, journalled or not, no second call is
            # made.
            assert policy == "resend" or sum(world.effects.values()) == 1, turns
        turns += 1
    assert turns > 30


@pytest.mark.parametrize("answer_lost", [False, True])
@pytest.mark.parametrize(
    "policy",
    [
        "resend",
        *(pytest.param(policy, marks=pytest.mark.slow) for policy in ("reconcile", "manual")),
    ],
)
async def test_a_store_may_fail_at_any_call(gesta, calls, policy, answer_lost):
    failing, needed = 0, 1
    while failing < needed:
        failing += 1
        world, url = World(), f"memory:{failing}"
        engine = engine_in(world, url, policy, journal=True)
        await engine.start()
        calls.made, calls.failing, calls.answer_lost = 0, failing, answer_lost
        try:
            request = await engine.submit(Note(), key="k")
        except StoreError:
            # The caller gets an error and may ask again under the same key.
            request = await engine.submit(Note(), key="k")
        await pass_time(gesta, 15)
        await gesta.settle()
        outcome = await result(request)
        assert len(await engine.find()) == 1
        assert await engine.admin.quarantined() == []
        assert engine.pipeline.pool.lease.held == 0, failing
        needed = min(calls.made, 60)
        await engine.stop()
        # S1-6: whatever the store does, an outcome that was learned is recorded, and nothing is
        # sent twice.
        assert sum(world.effects.values()) <= 1, failing
        assert isinstance(outcome, (Done, Unknown) if policy == "manual" else Done), failing
    assert failing == 60
