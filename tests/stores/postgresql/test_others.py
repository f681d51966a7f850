"""Several processes on one schema: each hears of the others' commits, goes by the server's clock,
and none waits for another for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from gesta.errors import StoreError
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Ack, Drop, Hold, Release
from gesta.ports.transactions import Entry
from gesta.runtime.clock import SystemRuntime
from gesta.stores import open_stores
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import connect
from gesta.testing.contracts.samples import (
    follow_from,
    fresh_append,
    fresh_claim,
    fresh_job,
    fresh_name,
    fresh_view,
)
from gesta.testing.harnesses.postgresql import Harness, SharedServer
from tests.stores.postgresql.places import fresh_url, opened

LONG_SECONDS = 3600.0
FIVE_MINUTES_MS = 300_000
NAMES = [f"projector/{number}" for number in range(4)]


@pytest.mark.parametrize("listen", ["on", "off"])
async def test_an_append_of_another_process_wakes_followers(listen):
    url = await fresh_url(listen=listen)
    async with opened(url) as one, opened(url) as other:
        # What was set before: the first poll always reports a commit.
        await asyncio.wait_for(other.events.changed(1.0), 10)
        waiting = asyncio.create_task(other.events.changed(LONG_SECONDS))
        while not waiting.done():
            await one.events.append([fresh_append()])
            await asyncio.wait([waiting], timeout=0.05)
        assert len(await other.events.follow(0, 10_000)) >= 1


class WrongClock(SystemRuntime):
    def now_ms(self) -> int:
        return super().now_ms() + FIVE_MINUTES_MS


async def test_a_process_uses_the_clock_of_the_server():
    url = await fresh_url()
    async with opened(url) as right:
        wrong = await open_stores(url, WrongClock())
        job = fresh_job("test.note")
        await right.queue.put([job])
        assert len((await right.queue.take("right", {"test.note": 1}, 10.0, durable=False))[0]) == 1
        # A lease that lives is not taken over, nor a job that is not due taken early.
        assert (await wrong.queue.take("wrong", {"test.note": 1}, 10.0, durable=False))[
            0
        ] == []  # K-14
        await right.queue.put(
            [fresh_job("test.note", due_ms=right.now_ms() + FIVE_MINUTES_MS // 2)]
        )
        assert (await wrong.queue.take("wrong", {"test.note": 1}, 10.0, durable=False))[
            0
        ] == []  # K-14
        assert abs(wrong.now_ms() - right.now_ms()) < FIVE_MINUTES_MS // 2
        await wrong.close()


class Member:
    """One process of several: everything at once, on the same few streams, keys, jobs and
    requests.
    """

    def __init__(self, stores, number, shared):
        self._stores, self._dice, self._token = stores, random.Random(number), f"member {number}"
        self._streams, self._jobs, self._views = shared
        self._step = 0
        self.leased: list[tuple[str, int]] = []
        self.appended = 0

    async def go(self, steps):
        calls = (
            self.append,
            self.append,
            self.record,
            self.put,
            self.take,
            self.take,
            self.extend,
            self.settle,
            self.project,
            self.postpone,
        )
        for self._step in range(steps):
            await self._dice.choice(calls)()

    async def append(self):
        verdicts = await self._stores.events.append(
            [self._append() for _ in range(self._dice.choice((1, 20, 300)))]
        )
        self.appended += sum(type(verdict).__name__ == "Appended" for verdict in verdicts)

    async def record(self):
        entries = [
            Entry(self._append() if self._dice.random() < 0.7 else None, self._settlement())
            for _ in range(self._dice.randint(1, 20))
        ]
        recordings = await self._stores.transactions.record(entries)
        self.appended += sum(
            type(recording.verdict).__name__ == "Appended" for recording in recordings
        )

    async def put(self):
        now = self._stores.now_ms()
        jobs = self._dice.sample(self._jobs, k=10)
        await self._stores.queue.put(
            [replace(job, due_ms=now + self._dice.choice((0, 0, 20))) for job in jobs]
        )

    async def take(self):
        leased, _ = await self._stores.queue.take(
            self._token, {"test.a": 5, "test.b": 5}, self._dice.choice((0.05, 10.0)), durable=True
        )
        self.leased += [(one.job.id, one.takes) for one in leased]

    async def extend(self):
        await self._stores.queue.extend(self._token, 10.0)

    async def settle(self):
        await self._stores.queue.settle(
            [self._settlement() for _ in range(self._dice.randint(1, 20))]
        )
        await self._stores.job_holds.unhold("pause", 10)

    async def project(self):
        # As if partitions were stolen back and forth: some of several, in any order.
        names = self._dice.sample(NAMES, k=2)
        found = {one.name: one.position for one in await self._stores.checkpoints.checkpoints()}
        stands = max(found.get(name, 0) for name in names)
        views = [
            replace(view, state=replace(view.state, version=stands + 1))
            for view in self._dice.sample(self._views, k=10)
        ]
        jobs = self._dice.sample(self._jobs, k=10)
        await self._stores.transactions.project(
            views, jobs, [], [Move(name, found.get(name, 0), stands + 1) for name in names]
        )

    async def postpone(self):
        states = [
            replace(view.state, version=self._dice.randint(1, 9))
            for view in self._dice.sample(self._views, k=10)
        ]
        await self._stores.sweep_index.postpone([(state, None) for state in states])

    def _append(self):
        # Keys that were free a moment ago and the others want, too.
        key = f"{self._step // 4} {self._dice.randrange(300)}".encode().rjust(16)
        claim = fresh_claim(key) if self._dice.random() < 0.6 else None
        if self._dice.random() < 0.5:
            return fresh_append(claim=claim)
        return fresh_append(self._dice.choice(self._streams), self._dice.randint(0, 3), claim=claim)

    def _settlement(self):
        job_id, due_ms = (
            self._dice.choice(self._jobs).id,
            self._stores.now_ms() + self._dice.choice((-1, 30)),
        )
        ours = (
            Ack(job_id, self._token),
            Release(job_id, self._token, due_ms),
            Hold(job_id, self._token, "pause"),
        )
        return self._dice.choice((*ours, Drop(job_id)))


@pytest.mark.slow
async def test_concurrent_transactions_never_deadlock(seed):
    url = await fresh_url()
    shared = (
        [f"test.request-{n}" for n in range(5)],
        [
            fresh_job(flow, tenant)
            for flow in ("test.a", "test.b")
            for tenant in ("one", "two")
            for _ in range(10)
        ],
        [fresh_view(id=f"request {n}", version=1) for n in range(30)],
    )
    stores = [await open_stores(url, SystemRuntime()) for _ in range(4)]
    members = [Member(one, seed * 10 + number, shared) for number, one in enumerate(stores)]

    async def rebuild():
        for _ in range(4):
            shadow = await stores[0].read_model.shadow()
            await shadow.save(shared[2])
            await shadow.swap(NAMES, 0, [])

    try:
        await asyncio.gather(*(member.go(40) for member in members), rebuild())
    except StoreError as error:
        raise AssertionError(f"a call failed that only met others: {error}") from error
    log = await follow_from(stores[0].events, 0)
    assert [event.position for event in log] == list(range(1, len(log) + 1))
    # Repeated appends do not occur here, so every yes is an event, once.
    assert len(log) == sum(member.appended for member in members)
    versions: dict[str, list[int]] = {}
    for event in log:
        versions.setdefault(event.stream, []).append(event.version)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in versions.values())
    for one in stores:
        await one.close()


@pytest.mark.slow
async def test_a_job_is_never_leased_to_two_workers():
    """Takes race with each other and with acks: every job comes out once."""
    url = await fresh_url()
    stores = [await open_stores(url, SystemRuntime()) for _ in range(4)]
    jobs = [fresh_job("test.a", tenant=f"tenant{n % 3}") for n in range(400)]
    got: list[str] = []

    async def work(one, token):
        while True:
            leased, _ = await one.queue.take(token, {"test.a": 7}, 30.0, durable=False)
            if not leased:
                if len(got) >= len(jobs):
                    return
                await one.queue.ready(0.01)
                continue
            got.extend(job.job.id for job in leased)
            assert await one.queue.settle([Ack(job.job.id, token) for job in leased]) == [
                "done"
            ] * len(leased)

    async def put():
        for start in range(0, len(jobs), 40):
            await stores[0].queue.put(jobs[start : start + 40])

    await asyncio.gather(
        put(), *(work(one, f"token {number}") for number, one in enumerate(stores))
    )
    assert sorted(got) == sorted(job.id for job in jobs)  # R1-21
    for one in stores:
        await one.close()


async def test_a_projector_that_waited_does_not_shorten_the_lease_its_worker_has_renewed(
    tmp_path,
):
    store = Harness(tmp_path)
    await store.open()
    flow, token, name = fresh_name(), fresh_name("token"), fresh_name()
    eager_dispatch = [FreeSlots(token, {flow: 5}, 4.0, durable=False) for _ in range(2)]
    assert await store.transactions.project(
        [], [fresh_job(flow)], [], [Move(name, 0, 7)], eager_dispatch[0]
    )
    other = await connect(address_of(await SharedServer.url()))
    await other.execute("begin")
    await other.execute(
        f"select * from {store._schema}.checkpoints where name = '{name}' for update"
    )
    late = asyncio.create_task(
        store.transactions.project([], [fresh_job(flow)], [], [Move(name, 7, 9)], eager_dispatch[1])
    )
    while not await other.fetch("select 1 from pg_locks where not granted"):
        await asyncio.sleep(0.01)
    for _ in range(5):
        store.runtime.advance(1)
        assert await store.queue.extend(token, 4.0)
    await other.execute("commit")
    await other.close(timeout=5)
    assert await late
    assert [len(free_slots.leased) for free_slots in eager_dispatch] == [1, 1]
    # Its worker believes until four seconds from here.
    assert await store.queue.take(fresh_name("token"), {flow: 5}, 4.0, durable=False) == (
        [],
        store.runtime.now_ms() + 4_000,
    )
    await store.close()


async def test_the_listener_survives_an_internal_error_of_the_client_library(monkeypatch):
    """The listener ended for good, and the caller that closed the store then got the error instead
    (found by a storm: seed 31020).
    """
    original = asyncpg.Connection.add_listener
    errors: list[str] = []

    async def add_listener(connection, channel, hearer):
        if not errors:
            errors.append("cannot switch to state 12; another operation (2) is in progress")
            raise asyncpg.InternalClientError(errors[0])
        await original(connection, channel, hearer)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", add_listener)
    monkeypatch.setattr("gesta.stores.postgresql.notifications.PAUSE_SECONDS", 0.01)
    # So that only a listener hears of it.
    monkeypatch.setattr("gesta.stores.postgresql.notifications.POLL_SECONDS", LONG_SECONDS)
    url = await fresh_url(listen="on")
    async with opened(url) as one, opened(url) as other:
        async with asyncio.timeout(60):
            waiting = asyncio.create_task(other.events.changed(LONG_SECONDS))
            while not waiting.done():
                await one.events.append([fresh_append()])
                await asyncio.wait([waiting], timeout=0.05)
    assert len(errors) == 1


async def test_a_store_closes_although_its_listener_failed(monkeypatch):
    async def listen(_):
        raise RuntimeError("an unexpected error")

    monkeypatch.setattr("gesta.stores.postgresql.notifications.Notifications.listen", listen)
    async with opened(await fresh_url(listen="on")) as stores:
        await stores.events.append([fresh_append()])


async def test_a_take_neither_waits_for_a_job_that_another_process_locks_nor_gets_it():
    url = await fresh_url()
    async with opened(url) as stores:
        locked, free = fresh_job("test.note"), fresh_job("test.note")
        await stores.queue.put([locked, free])
        async with locking(url, locked.id):
            leased, _ = await asyncio.wait_for(
                stores.queue.take("one", {"test.note": 2}, 10.0, durable=False), 10
            )
            assert [one.job.id for one in leased] == [free.id]
        leased, _ = await stores.queue.take("one", {"test.note": 2}, 10.0, durable=False)
        assert [one.job.id for one in leased] == [locked.id]


async def test_an_external_lease_neither_waits_for_a_job_that_another_process_locks_nor_gets_it():
    url = await fresh_url()
    async with opened(url) as stores:
        locked, free = fresh_job("@test.pick/acme"), fresh_job("@test.pick/acme")
        await stores.queue.put([locked, free])
        async with locking(url, locked.id):
            leased = await asyncio.wait_for(
                stores.external_leases.lease_external("one", "@test.pick/acme", 2, 10.0), 10
            )
            assert [one.job.id for one in leased] == [free.id]


@asynccontextmanager
async def locking(url: str, job_id: str) -> AsyncIterator[None]:
    """The row of a job is locked, as by a process that is just settling it."""
    address = address_of(url)
    connection = await asyncpg.connect(address.server)
    try:
        async with connection.transaction():
            await connection.execute(
                f"select 1 from {address.schema}.jobs where id = $1 for update", job_id
            )
            yield
    finally:
        await connection.close()
