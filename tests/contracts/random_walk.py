"""Random calls to two stores at once, which must answer the same.

The ends of leases and delays are hit exactly now and then.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from gesta.domain.ids import external_queue_of, external_queues_of
from gesta.ports.checkpoints import Move
from gesta.ports.event_store import Append, Appended
from gesta.ports.job_queue import Ack, Drop, Hold, LeasedJob, Release, Settlement
from gesta.ports.read_model import Filter, View
from gesta.ports.transactions import Entry, Recording
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_job,
    fresh_name,
    fresh_stream,
    fresh_view,
    key_of,
    phase_of,
)
from gesta.testing.contracts.sweep_index import walk

LEASE_SECONDS = 10.0
STEPS_MS = (1, 1, 1, 50, 1000, 9999, 10_000)
TOKENS = ("A", "B", "C")
#: Names of external workers: no worker of ours has one of them.
HOLDERS = ("X", "Y")
TENANTS = ("one", "two")
SCOPES = ("flow:a", "tenant:b")
STATUSES = ("queued", "queued", "unknown", "completed", "failed")


class Walk:
    """A few streams, jobs and requests, and calls that meet each other on them."""

    def __init__(self, seed: int, reference: Harness, store: Harness) -> None:
        self._reference, self._store = reference, store
        self._dice = random.Random(seed)
        self._flows = [fresh_name() for _ in range(2)]
        self._jobs = [
            fresh_job(
                self._dice.choice(self._flows),
                self._dice.choice(TENANTS),
                priority=self._dice.randint(1, 10),
            )
            for _ in range(6)
        ]
        self._external_queues = [external_queue_of(self._flows[0], tenant) for tenant in TENANTS]
        self._jobs += [
            fresh_job(external_queue, tenant)
            for external_queue, tenant in zip(self._external_queues, TENANTS, strict=True)
            for _ in range(2)
        ]
        self._streams = [fresh_stream() for _ in range(4)]
        self._keys = [fresh_claim().name for _ in range(3)]
        self._requests = [fresh_view(tenant=self._dice.choice(TENANTS)) for _ in range(5)]
        self._appends: list[Append] = []

    async def go(self, steps: int) -> None:
        calls = [
            self.put,
            self.take,
            self.take,
            self.extend,
            self.settle,
            self.unhold,
            self.append,
            self.append,
            self.record,
            self.record,
            self.project,
            self.project,
            self.sweep,
            self.look,
            self.lease_external,
            self.lease_external,
            self.prolong,
            self.expired_leases,
        ]
        for _ in range(steps):
            step_ms = self._dice.choice(STEPS_MS)
            for harness in (self._reference, self._store):
                harness.runtime.advance(step_ms / 1000)
            await self._dice.choice(calls)()

    async def _same(
        self,
        call: Callable[[Harness], Awaitable[Any]],
        comparable: Callable[[Any], Any] = lambda answer: answer,
    ) -> None:
        expected, answer = (
            comparable(await call(self._reference)),
            comparable(await call(self._store)),
        )
        assert answer == expected

    async def put(self) -> None:
        job = replace(
            self._dice.choice(self._jobs),
            due_ms=self._now_ms() + self._dice.choice((0, 0, 1000, 20_000)),
        )
        await self._same(lambda harness: harness.queue.put([job]))

    async def take(self) -> None:
        # All or nothing: which of several jobs with the same score goes first is not promised.
        token, free = (
            self._dice.choice(TOKENS),
            {flow: self._dice.choice((0, 100)) for flow in self._flows},
        )
        await self._same(
            lambda harness: harness.queue.take(token, free, LEASE_SECONDS, durable=False),
            lambda answer: _comparable_jobs(answer[0]),
        )

    async def extend(self) -> None:
        token = self._dice.choice(TOKENS)
        await self._same(lambda harness: harness.queue.extend(token, LEASE_SECONDS))

    async def lease_external(self) -> None:
        token, external_queue = self._dice.choice(HOLDERS), self._dice.choice(self._external_queues)
        await self._same(lambda harness: harness.external_leases.stocked(self._external_queues))
        await self._same(
            lambda harness: harness.external_leases.lease_external(
                token, external_queue, 100, LEASE_SECONDS
            ),
            _comparable_jobs,
        )

    async def prolong(self) -> None:
        job_id, token, seconds = (
            self._dice.choice(self._jobs).id,
            self._dice.choice(HOLDERS),
            self._dice.choice((0, LEASE_SECONDS)),
        )
        await self._same(lambda harness: harness.external_leases.prolong(job_id, token, seconds))

    async def expired_leases(self) -> None:
        token, external_queues = (
            self._dice.choice(HOLDERS),
            external_queues_of(self._dice.choice(self._flows)),
        )
        await self._same(
            lambda harness: harness.external_leases.expired_leases(
                token, external_queues, 100, LEASE_SECONDS
            ),
            _comparable_jobs,
        )

    async def settle(self) -> None:
        settlements = [self._settlement() for _ in range(self._dice.randint(1, 3))]
        await self._same(lambda harness: harness.queue.settle(settlements))

    async def unhold(self) -> None:
        # All or none: which of several goes first is not promised.
        scope, limit = self._dice.choice(SCOPES), self._dice.choice((0, 100))
        await self._same(lambda harness: harness.job_holds.unhold(scope, limit))

    async def append(self) -> None:
        appends = [self._append() for _ in range(self._dice.randint(1, 3))]
        await self._same(lambda harness: harness.events.append(appends))

    async def record(self) -> None:
        entries = [self._entry() for _ in range(self._dice.randint(1, 3))]
        await self._same(
            lambda harness: harness.transactions.record(entries),
            lambda answer: [_comparable(one) for one in answer],
        )

    async def project(self) -> None:
        views = {
            view.state.id: view for view in (self._view() for _ in range(self._dice.randint(0, 3)))
        }
        before = await self._reference.checkpoints.position("walk") + self._dice.choice(
            (0, 0, 0, 1)
        )
        jobs = self._dice.sample(self._jobs, k=2)
        await self._same(
            lambda harness: harness.transactions.project(
                [*views.values()], jobs, [], [Move("walk", before, before + 5)]
            )
        )

    async def sweep(self) -> None:
        now_ms, limit = self._now_ms(), self._dice.randint(1, 6)
        await self._same(
            lambda harness: harness.sweep_index.due(now_ms, 100),
            lambda answer: (sorted(view.state.id for view in answer[0]), answer[1]),
        )
        await self._same(
            lambda harness: walk(harness, now_ms - 500, limit),
            lambda answer: sorted(answer, key=lambda state: state.id),
        )
        looked_at = replace(
            self._dice.choice(self._requests).state, version=self._dice.randint(1, 9)
        )
        later = self._dice.choice((None, now_ms + 700))
        await self._same(lambda harness: harness.sweep_index.postpone([(looked_at, later)]))

    async def look(self) -> None:
        chosen = Filter(
            self._dice.choice(TENANTS),
            flow=self._dice.choice((None, "contract.flow", "other.flow")),
            status=self._dice.choice((None, "queued")),
            before_id=self._dice.choice((None, self._requests[2].state.id)),
            limit=self._dice.randint(1, 5),
        )
        await self._same(lambda harness: harness.read_model.find(chosen))
        await self._same(lambda harness: harness.read_model.counts(chosen.tenant))
        await self._same(
            lambda harness: harness.read_model.get([key_of(view) for view in self._requests])
        )
        await self._same(lambda harness: harness.unique_jobs.find([job.id for job in self._jobs]))
        await self._same(lambda harness: harness.job_inspection.count(4))
        await self._same(
            lambda harness: harness.job_holds.held(),
            lambda answer: {(one.tenant, one.scope, one.count) for one in answer},
        )
        await self._same(
            lambda harness: harness.events.follow(0, 1000),
            lambda answer: [(event.stream, event.version, event.id) for event in answer],
        )

    def _now_ms(self) -> int:
        return self._reference.runtime.now_ms()

    def _append(self) -> Append:
        if self._appends and self._dice.random() < 0.3:
            return self._dice.choice(self._appends)
        claim = fresh_claim(self._dice.choice(self._keys)) if self._dice.random() < 0.2 else None
        append = fresh_append(
            self._dice.choice(self._streams),
            self._dice.randint(0, 4),
            self._dice.randint(1, 2),
            claim,
        )
        self._appends.append(append)
        return append

    def _settlement(self) -> Settlement:
        job_id, token = self._dice.choice(self._jobs).id, self._dice.choice(TOKENS + HOLDERS)
        release = Release(job_id, token, self._now_ms() + self._dice.choice((0, 500, 5000)))
        hold = Hold(job_id, token, self._dice.choice(SCOPES))
        return self._dice.choice(
            (Ack(job_id, token), Ack(job_id, token), release, hold, Drop(job_id))
        )

    def _entry(self) -> Entry:
        append = self._append() if self._dice.random() < 0.7 else None
        return Entry(append, self._settlement() if self._dice.random() < 0.7 else None)

    def _view(self) -> View:
        view, now_ms, dice = self._dice.choice(self._requests), self._now_ms(), self._dice
        version, status = dice.randint(1, 9), dice.choice(STATUSES)
        state = replace(
            view.state,
            version=version,
            status=status,
            phase=phase_of(status),
            updated_at=now_ms - dice.choice((0, 1000, 100_000)),
            due_at=dice.choice((None, now_ms, now_ms + 5000, now_ms + 1_000_000)),
            expires_at=dice.choice((None, now_ms, now_ms + 3000)),
            policy=dice.choice(("manual", "reconcile", "resend")),
        )
        return View(state, view.payload)


def _comparable_jobs(leased: list[LeasedJob]) -> object:
    return sorted(
        (one.job.id, one.token, one.takes, one.job.possibly_executed, one.available_ms)
        for one in leased
    )


def _comparable(recording: Recording) -> object:
    """What a recording tells: where the events were refused, nothing is promised about `settled`
    but that it is not done.
    """
    refused = recording.verdict is not None and not isinstance(recording.verdict, Appended)
    return (recording.verdict, recording.settled == "done") if refused else recording
