"""The lease of one process, by itself: what it covers, and what it does when the store fails, hangs
or says no.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gesta import Attempt, Done, Outcome, Unknown
from gesta.ports.job_queue import Job, Release
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Ids, ManualRuntime, sleep, spawn, turn
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process
from gesta.runtime.telemetry import Telemetry
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.worker.lease import Lease, LeaseReconciliation
from tests.world import (
    FLOW,
    WORKER_LOST,
    Faulty,
    Gate,
    Note,
    Provider,
    die,
    engine_of,
    let_run,
    pass_time,
    result,
    types_of,
)


class Cuts(list[int]):
    """When the calls were cut."""


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime(start_ms=0)


@pytest.fixture
def queue(runtime: ManualRuntime) -> Faulty:
    return Faulty(MemoryJobQueue(runtime))


@pytest.fixture
def cuts() -> Cuts:
    return Cuts()


@pytest.fixture
async def lease(runtime: ManualRuntime, queue: Faulty, cuts: Cuts) -> AsyncIterator[Lease]:
    lease = Lease(
        queue,
        Process(runtime, Ids(runtime), Telemetry()),
        lambda: cuts.append(runtime.now_ms()),
    )
    keeping = spawn(lease.keep(), "keep")
    yield lease
    keeping.cancel()


async def take(lease: Lease, queue: Faulty, runtime: ManualRuntime) -> str:
    """Hold one job; the token it is held under."""
    await queue.put([Job("r-1", "default", FLOW, "r", 1)])
    token, asked_at = lease.token, runtime.monotonic()
    leased, _ = await queue.take(token, {FLOW: 1}, 4.0, durable=True)
    lease.renewed(token, asked_at)
    lease.held += len(leased)
    return token


async def pass_seconds(runtime: ManualRuntime, seconds: float) -> None:
    for _ in range(round(seconds * 4)):
        runtime.advance(0.25)
        for _ in range(5):
            await turn()


async def test_a_lease_that_was_never_granted_covers_nothing(lease):
    assert not lease.covers(lease.token)


async def test_a_granted_lease_covers_its_token_up_to_the_margin(lease, queue, runtime):
    token = await take(lease, queue, runtime)
    queue.fail("extend", times=10)
    assert lease.covers(token)
    assert not lease.covers("another's")
    await pass_seconds(runtime, 2.75)
    assert lease.covers(token)
    await pass_seconds(runtime, 0.5)
    assert not lease.covers(token)


async def test_a_renewed_lease_is_never_cut(lease, queue, runtime, cuts):
    token = await take(lease, queue, runtime)
    await pass_seconds(runtime, 60)
    assert (lease.covers(token), cuts) == (True, [])


async def test_the_calls_are_cut_a_second_before_a_lease_ends_that_cannot_be_renewed(
    lease, queue, runtime, cuts
):
    token = await take(lease, queue, runtime)
    queue.fail("extend", times=10)
    await pass_seconds(runtime, 4)
    assert cuts == [3_000]
    assert lease.token != token


async def test_the_calls_are_cut_at_the_same_time_when_the_renewal_hangs(
    lease, queue, runtime, cuts
):
    await take(lease, queue, runtime)

    async def hang(original, *args):
        await asyncio.Event().wait()

    queue.replace("extend", hang)
    await pass_seconds(runtime, 4)
    assert cuts == [3_000]


async def test_a_lease_that_another_ended_is_lost_at_the_next_renewal(lease, queue, runtime, cuts):
    await take(lease, queue, runtime)

    async def no(original, *args):
        return False

    queue.replace("extend", no)
    await pass_seconds(runtime, 2)
    assert cuts == [1_000]


async def test_an_answer_that_comes_after_the_loss_does_not_bring_the_lease_back(
    lease, queue, runtime, cuts
):
    token = await take(lease, queue, runtime)
    go_on = asyncio.Event()

    async def late(original, *args):
        await go_on.wait()
        return True

    queue.replace("extend", late)
    await pass_seconds(runtime, 3.5)
    go_on.set()
    await pass_seconds(runtime, 0.25)
    # Neither the lost token nor the new one, which holds nothing yet.
    assert (lease.covers(token), lease.covers(lease.token)) == (False, False)


async def test_a_take_that_is_answered_after_the_loss_does_not_bring_the_lease_back(
    lease, queue, runtime
):
    token, asked_at = lease.token, runtime.monotonic()
    lease.lose("for the test")
    lease.renewed(token, asked_at)
    assert not lease.covers(token)
    assert not lease.covers(lease.token)


async def test_a_lease_that_holds_nothing_is_not_renewed(lease, queue, runtime, cuts):
    token = await take(lease, queue, runtime)
    lease.held = 0
    await pass_seconds(runtime, 20)
    assert (queue.calls["extend"], cuts) == (0, [])
    # It has ended: a take that is granted later must not renew what was left to its end.
    assert lease.token != token


async def test_a_lost_lease_is_lost_once(lease, queue, runtime, cuts):
    await take(lease, queue, runtime)
    queue.fail("extend", times=100)
    await pass_seconds(runtime, 30)
    # Its calls take their time to end; no new lease is asked to be renewed meanwhile.
    assert cuts == [3_000]
    assert queue.calls["extend"] <= 4


async def test_a_job_whose_release_is_being_repeated_is_not_leased_for_sure(lease, queue, runtime):
    """The repetition may end the lease that the answer speaks of."""
    store_retry = StoreRetry(Process(runtime, Ids(runtime), Telemetry()))
    reconciliation = LeaseReconciliation(queue, lease, store_retry=store_retry, runtime=runtime)
    answered = asyncio.Event()
    release = Release("r-1", lease.token, 0)
    repeating = spawn(store_retry.again(answered.wait, [release]), "repeat")
    await turn()
    await pass_seconds(runtime, STORE_PAUSE_SECONDS)
    await queue.put([Job(f"r-{number}", "default", FLOW, "r", number) for number in (1, 2)])
    asked = reconciliation.ask()
    leased, _ = await queue.take(asked.token, {FLOW: 2}, 4.0, durable=True)
    assert [one.job.id for one in reconciliation.sure(leased, asked)] == ["r-2"]
    answered.set()
    await repeating
    assert reconciliation.sure(leased, reconciliation.ask()) == leased


async def test_a_clock_that_jumped_ahead_does_not_make_a_process_work_beside_itself(
    gesta, monkeypatch
):
    running: list[str] = []
    most = 0

    async def execute(payload: Note, attempt: Attempt) -> Outcome:
        nonlocal most
        running.append(attempt.request_id)
        most = max(most, running.count(attempt.request_id))
        try:
            if attempt.number == 1 and payload.text == "slow":
                await asyncio.Event().wait()
            return Done()
        finally:
            running.remove(attempt.request_id)

    async with engine_of(Provider(execute, execute, execute)) as engine:
        request = await engine.submit(Note("slow"))
        await let_run(gesta)
        # The machine slept: its wall clock, by which leases end, has moved; its monotonic clock has
        # not.
        monotonic = gesta.runtime.monotonic
        gesta.runtime._now_ms += 60_000
        monkeypatch.setattr(gesta.runtime, "monotonic", lambda: monotonic() - 60)
        other = await engine.submit(Note("quick"))
        await let_run(gesta)
        await pass_time(gesta, 10)
        # The call that ran when it fell asleep was cut, and only then begun again.
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "OutcomeUnknown",
            "Completed",
        ]
        assert await other.status() == "completed"
        assert await engine.admin.quarantined() == []
    assert most == 1


async def test_a_possibly_executed_job_is_not_made_clean_by_a_lease_that_ran_out_before_the_call(
    gesta, ports
):
    provider = Provider(Gate())
    async with engine_of(provider, on_unknown="manual") as dying:
        request = await dying.submit(Note())
        await let_run(gesta)
        await die(dying)
    async with engine_of(provider, on_unknown="manual") as engine:
        loading = asyncio.Event()

        async def slow(original, *args):
            if not loading.is_set():
                loading.set()
                # Longer than the margin allows, shorter than the lease lasts.
                await sleep(gesta.runtime, 3.25)
            return await original(*args)

        await let_run(gesta)
        ports.events.replace("read", slow)
        ports.queue.fail("extend", times=4)
        await pass_time(gesta, 20)
        assert loading.is_set()
        assert await result(await engine.request(request.id)) == Unknown("lease_lost", WORKER_LOST)
    assert len(provider.calls) == 1
