"""Rate limits: what flows take before they call a provider, shared by all processes of a store."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import ceil
from pathlib import Path

import pytest

from gesta import Attempt, Done, Engine, Outcome, Retry
from gesta.errors import StoreError
from gesta.flows.deferrals import Postponed
from gesta.outbound.rate_limits import ADVANCE_MS, AHEAD_MS, SPREAD_MS, Limit, Limits, Tokens
from gesta.ports.token_buckets import Reserved, TokenBuckets, Wanted
from gesta.runtime.clock import ManualRuntime, sleep, spawn, turn
from gesta.stores.memory.token_buckets import MemoryTokenBuckets
from gesta.stores.postgresql import open_at
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import Connections
from gesta.stores.sqlite import open_stores
from gesta.testing.harnesses.postgresql import SharedServer
from tests.world import URL, Note, Provider, engine_of, let_run, note_flow, pass_time, result

ONE = Limit("room", 1.0)


class Counting(MemoryTokenBuckets):
    """Tells what it was asked, and can be out of reach."""

    def __init__(self, runtime: ManualRuntime) -> None:
        super().__init__(runtime)
        self.asked: list[list[Wanted]] = []
        self.is_down = False

    async def reserve(self, wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        self.asked.append(list(wanted))
        if self.is_down:
            raise StoreError("out of reach")
        return await super().reserve(wanted, ahead_ms)

    async def close(self, closed: Sequence[tuple[tuple[str, str], int]]) -> None:
        if self.is_down:
            raise StoreError("out of reach")
        await super().close(closed)


class World:
    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.token_buckets = Counting(self.runtime)
        self.limits = self.process()

    def process(self, tenant: str = "acme") -> Limits:
        return Limits(Tokens(self.token_buckets, self.runtime), tenant)

    async def leased(self, *limits: Limit, by: Limits | None = None) -> float | None:
        """How long it took; None when it was postponed."""
        began = self.runtime.now_ms()
        task = spawn((by or self.limits).take(*limits), "take")
        for _ in range(AHEAD_MS + 50):
            for _ in range(10):
                await turn()
            if task.done():
                break
            self.runtime.advance(0.001)
        try:
            await task
        except Postponed:
            return None
        return self.runtime.now_ms() - began


@pytest.fixture
def world() -> World:
    return World()


async def postponement(limits: Limits, *wanted: Limit) -> float:
    with pytest.raises(Postponed) as postponed:
        await limits.take(*wanted)
    return postponed.value.after_seconds


async def test_a_token_is_there_at_once_and_the_next_one_after_its_time(world):
    assert await world.leased(ONE) == 0
    assert await postponement(world.limits, ONE) == 1.0
    world.runtime.advance(1)
    assert await world.leased(ONE) == 0


async def test_an_attempt_that_is_early_by_a_moment_waits_in_its_slot(world):
    await world.leased(ONE)
    world.runtime.advance(0.9)
    assert await world.leased(ONE) == 100


async def test_a_burst_may_be_taken_at_once(world):
    limit = Limit("room", 1.0, burst=3)
    assert [await world.leased(limit) for _ in range(4)] == [0, 0, 0, None]


async def test_postponed_requests_come_back_one_after_the_other(world):
    await world.leased(ONE)
    assert [await postponement(world.limits, ONE) for _ in range(4)] == [1, 2, 3, 4]
    for _ in range(SPREAD_MS // 1000 - 5):
        await postponement(world.limits, ONE)
    assert [await postponement(world.limits, ONE) for _ in range(2)] == [SPREAD_MS // 1000, 1], (
        "from the front again"
    )


async def test_one_of_each_or_none(world):
    other = Limit("workspace", 10.0, burst=10)
    await world.leased(ONE)
    assert await world.leased(other, ONE) is None
    assert await world.leased(ONE, other) is None
    given = [await world.leased(other) for _ in range(11)]
    assert given[:10] == [0] * 10, "the token of the other one was returned"


async def test_requests_of_the_same_turn_share_one_call(world):
    limit = Limit("room", 1_000.0, burst=200)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(20)))
    assert [len(asked) for asked in world.token_buckets.asked] == [1]


async def test_recent_demand_is_reserved_in_advance(world):
    limit = Limit("room", 100.0, burst=1)
    for _ in range(100):
        assert await world.leased(limit) is not None
    assert len(world.token_buckets.asked) < 25
    assert (
        max(one.tokens for asked in world.token_buckets.asked for one in asked)
        <= ADVANCE_MS / limit.gap_ms + 1
    )


@pytest.mark.parametrize("pause_ms", [10, ADVANCE_MS, 2 * ADVANCE_MS])
async def test_a_burst_finds_its_tokens_where_one_like_it_has_been_lately(world, pause_ms):
    limit, around, size = (
        Limit("room", 10_000.0, burst=1_000),
        Limit("house", 10_000.0, burst=1_000),
        50,
    )
    waits = []
    for _ in range(6):
        before, takes = (
            len(world.token_buckets.asked),
            [world.limits.take(limit, around) for _ in range(size)],
        )
        tasks = [spawn(one, "take") for one in takes]
        await turn()
        waits.append(sum(not task.done() for task in tasks))
        await asyncio.gather(*tasks)
        assert len(world.token_buckets.asked) <= before + 2, (
            "one question for all of them, and one in advance"
        )
        world.runtime.advance(pause_ms / 1000)
    assert waits[0] == size
    assert waits[2:] == [0, 0, 0, 0]


async def test_after_a_rest_no_token_stays_reserved(world):
    limit = Limit("room", 10_000.0, burst=1_000)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(500)))
    world.runtime.advance(60)
    await world.limits.take(limit)
    assert [one.tokens for one in world.token_buckets.asked[-1]] == [1]


async def test_under_load_the_next_tokens_are_there_before_the_last_one_is_used(world):
    limit = Limit("room", 10_000.0, burst=100)
    for _ in range(40):
        await world.leased(limit)
        world.runtime.advance(0.005)
    reserve, answering = world.token_buckets.reserve, asyncio.Event()

    async def slow(wanted: Sequence[Wanted], ahead_ms: int) -> list[Reserved]:
        await answering.wait()
        given: list[Reserved] = await reserve(wanted, ahead_ms)
        return given

    world.token_buckets.reserve = slow
    before, had_to_wait = len(world.token_buckets.asked), 0
    for _ in range(100):
        answering.clear()
        take = spawn(world.limits.take(limit), "take")
        for _ in range(10):
            await turn()
        had_to_wait += not take.done()
        answering.set()
        await take
        for _ in range(10):
            await turn()
        world.runtime.advance(0.005)
    assert had_to_wait == 0
    assert before < len(world.token_buckets.asked) < before + 25


async def test_a_failed_question_in_advance_reaches_no_caller(world, caplog):
    limit = Limit("room", 10_000.0, burst=100)
    for _ in range(40):
        await world.leased(limit)
        world.runtime.advance(0.005)
    world.token_buckets.is_down = True
    while await world.leased(limit) is not None:
        """Down to the last one that it has."""
    world.token_buckets.is_down = False
    assert await world.leased(limit) == 0
    gc.collect()
    assert caplog.records == []


async def test_an_attempt_that_gets_one_of_two_tokens_returns_it(world):
    other, full = Limit("workspace", 0.1, burst=1), world.process()
    assert await world.leased(other, by=full) == 0
    assert await world.leased(ONE, other) is None
    assert await world.leased(ONE) == 0


async def test_an_empty_bucket_is_not_asked_again_and_again(world):
    await world.leased(ONE)
    await postponement(world.limits, ONE)
    before = len(world.token_buckets.asked)
    for _ in range(20):
        await postponement(world.limits, ONE)
    assert len(world.token_buckets.asked) == before


async def test_an_unused_bucket_expires(world):
    limit = Limit("room", 100.0)
    for _ in range(60):
        await world.leased(limit)
    world.runtime.advance(60)
    began = world.runtime.now_ms()
    given = [await world.leased(limit) for _ in range(20)]
    assert None not in given
    # Nothing was saved up from before but one token.
    assert world.runtime.now_ms() - began >= 19 * 10


async def test_a_closed_name_is_closed_in_every_process_and_no_other_name_is(world):
    other = world.process()
    await world.limits.close(ONE.name, 30)
    assert await postponement(world.limits, ONE) == 30
    assert await postponement(other, ONE) == 30
    assert await world.leased(Limit("another room", 1.0), by=other) == 0
    assert await world.leased(ONE, by=world.process("globex")) == 0
    world.runtime.advance(30)
    assert await world.leased(ONE, by=other) == 0


async def test_closing_takes_back_what_this_process_had_reserved(world):
    limit = Limit("room", 100.0, burst=10)
    for _ in range(30):
        await world.leased(limit)
    await world.limits.close(limit.name, 5)
    assert await world.leased(limit) is None


async def test_without_the_store_no_token_is_taken_and_closing_does_no_harm(world):
    world.token_buckets.is_down = True
    assert await postponement(world.limits, ONE) == 1.0
    await world.limits.close(ONE.name, 10)
    world.token_buckets.is_down = False
    assert await postponement(world.limits, ONE) == 10


@pytest.mark.parametrize(
    "wrong",
    [
        ("", 1.0, 1),
        ("room", 0.0, 1),
        ("room", -1.0, 1),
        ("room", float("nan"), 1),
        ("room", 1.0, 0),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="a limit needs"):
        Limit(*wrong)


async def test_taps_that_say_nothing_any_more_are_dropped(world, monkeypatch):
    monkeypatch.setattr("gesta.outbound.rate_limits.NAMES_MAX", 10)
    tokens = Tokens(world.token_buckets, world.runtime)
    for n in range(50):
        await tokens.take("acme", [Limit(f"room {n}", 1_000.0)])
        world.runtime.advance(1)
    assert len(tokens._taps) <= 11


def taking(limit: Limit) -> Callable[[Note, Attempt], Awaitable[Outcome]]:
    async def play(_payload: Note, attempt: Attempt) -> Outcome:
        await attempt.limits.take(limit)
        return Done(str(attempt.at_ms))

    return play


async def test_a_flow_under_a_limit_sends_everything_and_spends_no_attempt_by_waiting(gesta):
    limit = Limit("room", 2.0)
    provider = Provider(*[taking(limit)] * 500)
    async with engine_of(provider) as engine:
        requests = [await engine.submit(Note(str(n))) for n in range(20)]
        await pass_time(gesta, 20)
        assert {(await one.view()).state.status for one in requests} == {"completed"}
        assert {(await one.view()).state.attempts for one in requests} == {1}
        sent = sorted([(await one.view()).state.updated_at for one in requests])
        assert (
            min(later - earlier for earlier, later in zip(sent, sent[2:], strict=False))
            >= 1_000 - AHEAD_MS
        )
        assert len(provider.calls) < 100


async def test_a_429_pauses_every_caller_of_the_name(gesta):
    async def throttled(_payload: Note, attempt: Attempt) -> Outcome:
        await attempt.limits.take(ONE)
        await attempt.limits.close(ONE.name, 60)
        return Retry("throttled", after_seconds=60)

    provider = Provider(throttled, *[taking(Limit("room", 10.0, burst=5))] * 20)
    async with Engine(URL, flows=[note_flow(provider)]) as engine:
        first = await engine.submit(Note("first"))
        await let_run(gesta)
        others = [await engine.submit(Note(str(n))) for n in range(3)]
        await pass_time(gesta, 59)
        assert {(await one.view()).state.status for one in (first, *others)} == {"queued"}
        assert [(await one.view()).state.attempts for one in (first, *others)] == [1, 0, 0, 0]
        await pass_time(gesta, 10)
        assert {(await one.view()).state.status for one in (first, *others)} == {"completed"}


async def test_names_of_tenants_are_separate(gesta):
    provider = Provider(*[taking(ONE)] * 10)
    async with engine_of(provider) as engine:
        requests = [await engine.submit(Note(), tenant=tenant) for tenant in ("acme", "globex")]
        await let_run(gesta)
        assert all([await result(one) is not None for one in requests])


async def test_the_sweeper_removes_unused_buckets(gesta):
    async with engine_of(Provider(taking(ONE))) as engine:
        await engine.submit(Note())
        await pass_time(gesta, 70)
        assert await engine.pipeline.environment.stores.token_buckets.forget(10) == 0


@asynccontextmanager
async def two_sqlite(
    runtime: ManualRuntime, folder: Path
) -> AsyncIterator[tuple[TokenBuckets, TokenBuckets]]:
    url = f"sqlite:///{folder / 'gesta.db'}"
    one, other = await open_stores(url, runtime), await open_stores(url, runtime)
    yield one.token_buckets, other.token_buckets
    await one.close()
    await other.close()


@asynccontextmanager
async def two_postgresql(
    runtime: ManualRuntime, folder: Path
) -> AsyncIterator[tuple[TokenBuckets, TokenBuckets]]:
    address = address_of(
        f"{await SharedServer.url()}?schema=limits_{folder.name.replace('-', '_')}&listen=off"
    )
    one, other = [
        await open_at(address, runtime, Connections(address), runtime.now_ms) for _ in range(2)
    ]
    yield one.token_buckets, other.token_buckets
    await one.close()
    await other.close()


@pytest.mark.slow
@pytest.mark.parametrize("store", [two_sqlite, two_postgresql], ids=["sqlite", "postgresql"])
async def test_two_processes_together_stay_within_the_rate(store, tmp_path):
    """Two openings of one store, as two processes have them, and twenty takers in each.

    The clock is the test's own.
    """
    runtime, limit, enough = ManualRuntime(), Limit("room", 200.0, burst=10), 1_000
    given: list[int] = []

    async def take_for_ever(limits: Limits) -> None:
        while True:
            try:
                await limits.take(limit)
                given.append(runtime.now_ms())
            except Postponed as postponed:
                await sleep(runtime, postponed.after_seconds)

    async with store(runtime, tmp_path) as processes:
        began = runtime.now_ms()
        tasks = [
            spawn(take_for_ever(limits), "taker")
            for limits in (Limits(Tokens(buckets, runtime), "acme") for buckets in processes)
            for _ in range(20)
        ]
        while len(given) < enough:
            runtime.advance(0.002)
            await turn()
        ended = runtime.now_ms()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    block = ceil(AHEAD_MS / limit.gap_ms)
    assert len(given) <= (ended - began) / limit.gap_ms + limit.burst + 2 * block
