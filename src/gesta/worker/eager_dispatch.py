"""Eager dispatch: the worker passes its free slots along with the jobs that its own process puts,
so that these jobs are leased in the commit that puts them.

The promise: a job is leased this way only if no other job of its flow waits before it, and never
more jobs than there are free slots. A job that is not leased this way is ready for the next take,
as if eager dispatch did not exist. Every set of free slots gets an answer. If the store's answer is
lost, the queue is asked what became of the jobs (lease.py).

The projector asks for free slots (`make`), the store fills them in (ports/eager_dispatch.py has the
values and the rule for choosing jobs), and `answered` hands the leased jobs to the pool.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.job_queue import Job, LeasedJob
from gesta.ports.read_model import View
from gesta.worker.lease import LEASE_SECONDS, Asked, LeaseReconciliation

#: A flow's slots are filled by at least this many takes. Calls that begin together end together,
#: and until then every new job waits. With a few waves, a slot for another tenant is soon free.
TAKES_TO_FILL = 8
#: Smaller takes would cost more than the waves gain,
TAKE_LEAST = 8
#: and this many slots left for later takes are enough.
KEPT_BACK_MOST = 1_000


def batch_max(slots: int) -> int:
    """How many jobs one take may return for a flow with this many slots."""
    return max(TAKE_LEAST, slots // TAKES_TO_FILL, slots - KEPT_BACK_MOST)


class _Given(FreeSlots):
    """Free slots on their way to the store and back."""

    __slots__ = ("asked", "wanted")

    wanted: Mapping[str, int]
    asked: Asked


class EagerDispatcher:
    def __init__(
        self,
        free: dict[str, int],
        reconciliation: LeaseReconciliation,
        *,
        begin: Callable[[list[LeasedJob], Mapping[str, View]], None],
        ended: Callable[[], None],
        durable: bool,
    ) -> None:
        """`free` are the pool's slots: those on their way do not count as free.

        `ended` is called when some come back.
        """
        self._free, self._reconciliation = free, reconciliation
        self._most = {flow: batch_max(slots) for flow, slots in free.items()}
        self._begin, self._ended, self._durable = begin, ended, durable
        #: Flows for which the queue had no job left when it was last asked. If it has jobs, the
        #: waiting jobs come first.
        self._drained: set[str] = set()
        self._is_closed = False
        self.on_their_way = 0

    def asks(self, flow: str, slots: int) -> int:
        """For how many free slots a take asks for jobs. If no job should be waiting, some slots are
        left for eager dispatch.
        """
        most = self._most[flow]
        few = max(TAKE_LEAST, most // TAKES_TO_FILL) if flow in self._drained else most
        return min(slots, most, few)

    @contextmanager
    def kept(self, slots: Mapping[str, int]) -> Iterator[None]:
        """Reserve the slots that a take asks for until it is answered."""
        self._change(slots, -1)
        try:
            yield
        finally:
            self._change(slots, 1)

    def _change(self, slots: Mapping[str, int], sign: int) -> None:
        for flow, count in slots.items():
            self._free[flow] += sign * count

    def asked(self, asked: Mapping[str, int], leased: Sequence[LeasedJob]) -> None:
        """Compare what a take asked for with what it got."""
        came = Counter([one.job.flow for one in leased])
        for flow, most in asked.items():
            (self._drained.add if came[flow] < most else self._drained.discard)(flow)

    def close(self) -> None:
        """Offer no more slots; open offers are still answered."""
        self._is_closed = True

    def make(self, jobs: Sequence[Job]) -> FreeSlots | None:
        if self._is_closed or not self._drained or self._reconciliation.is_uncertain:
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
        asked = self._reconciliation.ask()
        free_slots = _Given(asked.token, free, LEASE_SECONDS, durable=self._durable)
        free_slots.wanted, free_slots.asked = wanted, asked
        self.on_their_way += 1
        return free_slots

    def answered(self, free_slots: FreeSlots, *, is_lost: bool) -> None:
        assert isinstance(free_slots, _Given)
        self.on_their_way -= 1
        self._change(free_slots.free, 1)
        leased = [] if is_lost else free_slots.leased
        if is_lost:
            # The queue knows what became of them.
            self._reconciliation.answer_lost()
        came = Counter([one.job.flow for one in leased])
        self._drained -= {flow for flow in free_slots.free if came[flow] < free_slots.wanted[flow]}
        if leased:
            if free_slots.renewed:
                self._reconciliation.renewed(free_slots.asked)
            # After a late answer the lease may have ended, and another worker have dealt with the
            # jobs: then their requests are read.
            is_fresh = self._reconciliation.age(free_slots.asked) < LEASE_SECONDS / 4
            made = free_slots.made if is_fresh else {}
            self._begin(self._reconciliation.sure(leased, free_slots.asked), made)
        if len(leased) < sum(free_slots.free.values()) or self._is_closed:
            self._ended()
