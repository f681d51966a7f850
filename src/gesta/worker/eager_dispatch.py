"""Station 6, the short way: the worker's free slots are offered with the jobs that its own process
puts, which are then taken as they are put.

Receives jobs on their way to the queue from the projector; hands what came back taken to pool.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Job, LeasedJob
from gesta.ports.read_model import View
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import Runtime
from gesta.worker.fetch_policy import few
from gesta.worker.lease import LEASE_SECONDS, Lease
from gesta.worker.lease_reconciliation import LeaseReconciliation


class _Given(FreeSlots):
    """An offer on its way."""

    __slots__ = ("at", "since", "wanted")

    wanted: Mapping[str, int]
    #: When it was made, by the clock and by the count of repetitions.
    at: float
    since: int


class EagerDispatcher:
    def __init__(
        self,
        free: dict[str, int],
        most: Mapping[str, int],
        lease: Lease,
        ours: LeaseReconciliation,
        store_retry: StoreRetry,
        runtime: Runtime,
        begin: Callable[[list[LeasedJob], Mapping[str, View]], None],
        ended: Callable[[], None],
        *,
        durable: bool,
    ) -> None:
        """`free` are the pool's slots: what is offered is not free meanwhile.

        `ended` is called where some come back.
        """
        self._free, self._most, self._lease, self._ours, self._store_retry, self._runtime = (
            free,
            most,
            lease,
            ours,
            store_retry,
            runtime,
        )
        self._begin, self._ended, self._durable = begin, ended, durable
        #: Flows of which the queue had no job left when it was asked last. Where it has, whoever
        #: waits comes first, and an offer would
        #: only keep slots from them.
        self._drained: set[str] = set()
        self._is_closed = False
        self.on_their_way = 0

    def asks(self, flow: str, slots: int) -> int:
        """For how many of its free slots a take asks: where nobody is thought to wait, some are
        left to be offered meanwhile.
        """
        most = min(slots, self._most[flow])
        return min(most, few(self._most[flow])) if flow in self._drained else most

    @contextmanager
    def kept(self, slots: Mapping[str, int]) -> Iterator[None]:
        """What a take asks for is not free meanwhile: an offer would give it a second time."""
        self._change(slots, -1)
        try:
            yield
        finally:
            self._change(slots, 1)

    def _change(self, slots: Mapping[str, int], sign: int) -> None:
        for flow, count in slots.items():
            self._free[flow] += sign * count

    def asked(self, asked: Mapping[str, int], leased: Sequence[LeasedJob]) -> None:
        """What a take asked for, and what came."""
        came = Counter([one.job.flow for one in leased])
        for flow, most in asked.items():
            (self._drained.add if came[flow] < most else self._drained.discard)(flow)

    def close(self) -> None:
        """No more offers; those on their way will be answered."""
        self._is_closed = True

    def make(self, jobs: Sequence[Job]) -> FreeSlots | None:
        if self._is_closed or not self._drained or self._ours.is_uncertain:
            return None
        wanted = Counter([job.flow for job in jobs])
        free = {
            flow: slots
            for flow in self._drained
            if flow in wanted
            and (slots := min(wanted[flow], self._free[flow], self._most[flow])) > 0
        }
        if not free:
            return None
        self._change(free, -1)
        free_slots = _Given(self._lease.token, free, LEASE_SECONDS, durable=self._durable)
        free_slots.wanted, free_slots.at, free_slots.since = (
            wanted,
            self._runtime.monotonic(),
            self._store_retry.count,
        )
        self.on_their_way += 1
        return free_slots

    def answered(self, free_slots: FreeSlots, *, is_lost: bool) -> None:
        assert isinstance(free_slots, _Given)
        self.on_their_way -= 1
        self._change(free_slots.free, 1)
        leased = [] if is_lost else free_slots.leased
        if is_lost:
            # The queue knows what became of them.
            self._ours.answer_lost()
        came = Counter([one.job.flow for one in leased])
        self._drained -= {flow for flow in free_slots.free if came[flow] < free_slots.wanted[flow]}
        if leased:
            if free_slots.renewed:
                self._lease.renewed(free_slots.token, free_slots.at)
            # Where the answer was long in coming, the lease may have ended, and somebody have dealt
            # with them: then they are read.
            is_fresh = self._runtime.monotonic() - free_slots.at < LEASE_SECONDS / 4
            self._begin(
                self._ours.sure(leased, free_slots.since, free_slots.at),
                free_slots.made if is_fresh else {},
            )
        if len(leased) < sum(free_slots.free.values()) or self._is_closed:
            self._ended()
