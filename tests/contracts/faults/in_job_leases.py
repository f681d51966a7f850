"""Queues with one thing wrong about leases."""

from gesta.ports.job_queue import Drop, LeasedJob
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.testing.contracts.external_leases import ExternalLeasesContract
from gesta.testing.contracts.fair_queue import OrderContract as Order
from gesta.testing.contracts.job_leases import JobLeasesContract as Leases
from gesta.testing.contracts.job_settlements import SettleContract as Settle
from gesta.testing.contracts.unique_jobs import UniqueJobsContract as Unique
from tests.contracts.faults.planting import breaks


@breaks(
    Leases.test_a_job_of_an_expired_lease_is_leased_to_another_worker,
    Leases.test_of_concurrent_workers_one_gets_the_job_of_an_expired_lease,
)
class NeverTakesALeaseBack(MemoryJobQueue):
    def _end_expired_leases(self):
        pass


@breaks(Leases.test_takes_are_counted_until_one_of_them_ends)
class ForgetsEarlierTakes(MemoryJobQueue):
    def _lease_out(self, row, token):
        row.takes = min(row.takes, 1)
        return super()._lease_out(row, token)


@breaks(Leases.test_a_job_of_an_expired_lease_keeps_the_time_since_when_it_was_available)
class CountsTheLagFromTheTakeover(MemoryJobQueue):
    def _enqueue(self, row):
        row.available_ms = max(row.available_ms, self._runtime.now_ms())
        super()._enqueue(row)


@breaks(Order.test_a_take_returns_when_the_lease_of_another_worker_ends)
class TellsNothingOfOthersLeases(MemoryJobQueue):
    def _next_due(self, token, flows):
        leases, self._leases = self._leases, {}
        moment = super()._next_due(token, flows)
        self._leases = leases
        return moment


@breaks(Leases.test_an_extended_lease_keeps_all_jobs_of_its_token)
class ExtendsInWordOnly(MemoryJobQueue):
    async def extend(self, token, lease_seconds):
        return token in self._leases


@breaks(Leases.test_extending_one_token_does_not_extend_another)
class ExtendsTheLeasesOfAll(MemoryJobQueue):
    async def extend(self, token, lease_seconds):
        for lease in self._leases.values():
            lease.end_ms = self._lease_end(lease_seconds)
        return token in self._leases


@breaks(Leases.test_the_jobs_of_a_token_are_listed_as_they_were_leased)
class TellsWhatOthersHold(MemoryJobQueue):
    async def leased_by(self, token):
        rows = [
            row for row in self._rows.values() if row.token is not None and row.until_ms is None
        ]
        return [LeasedJob(row.job, token, row.takes, row.available_ms) for row in rows]


@breaks(ExternalLeasesContract.test_a_lease_of_an_external_worker_is_not_listed_by_token)
class TellsWhatWasHandedOut(MemoryJobQueue):
    async def leased_by(self, token):
        return [
            LeasedJob(row.job, token, row.takes, row.available_ms)
            for row in self._rows.values()
            if row.token == token
        ]


@breaks(Leases.test_a_take_renews_the_earlier_leases_of_its_token)
class RenewsNothingByTaking(MemoryJobQueue):
    async def take(self, token, flows, lease_seconds, *, durable):
        end_ms = (
            self._leases[token].end_ms if token in self._leases else self._lease_end(lease_seconds)
        )
        answer = await super().take(token, flows, lease_seconds, durable=durable)
        if token in self._leases:
            self._leases[token].end_ms = end_ms
        return answer


@breaks(
    Leases.test_an_expired_lease_cannot_be_extended,
    Leases.test_a_lease_that_another_worker_took_over_cannot_be_extended,
)
class ExtendsWhatRanOut(MemoryJobQueue):
    async def extend(self, token, lease_seconds):
        if token in self._leases:
            self._leases[token].end_ms = self._lease_end(lease_seconds)
        return True


@breaks(Leases.test_a_frozen_worker_gets_its_job_only_by_a_new_lease)
class RevivesTheLeaseOfAFrozenWorker(MemoryJobQueue):
    async def take(self, token, flows, lease_seconds, *, durable):
        if token in self._leases:
            self._leases[token].end_ms = self._lease_end(lease_seconds)
        return await super().take(token, flows, lease_seconds, durable=durable)


@breaks(
    Leases.test_a_worker_that_lost_its_lease_can_neither_ack_nor_release,
    Settle.test_only_the_holder_can_ack_or_release,
)
class IgnoresTheToken(MemoryJobQueue):
    def judge(self, settlement):
        settled = super().judge(settlement)
        return "done" if settled == "lost" else settled


@breaks(Leases.test_an_ack_after_the_lease_counts_while_no_worker_has_leased_the_job)
class FencesByTheClock(MemoryJobQueue):
    def judge(self, settlement):
        self._end_expired_leases()
        return super().judge(settlement)


@breaks(Unique.test_a_job_of_an_expired_lease_cannot_be_dropped)
class DropsUnderADeadLease(MemoryJobQueue):
    def judge(self, settlement):
        row = self._rows.get(settlement.job_id)
        lease = self._leases.get(row.token or "") if row else None
        dead = lease is not None and lease.end_ms <= self._runtime.now_ms()
        return "done" if isinstance(settlement, Drop) and dead else super().judge(settlement)


@breaks(Unique.test_a_job_of_a_cleared_expired_lease_cannot_be_dropped)
class DropsWhateverHasNoToken(MemoryJobQueue):
    def judge(self, settlement):
        row = self._rows.get(settlement.job_id)
        return (
            "done"
            if isinstance(settlement, Drop) and row and row.token is None
            else super().judge(settlement)
        )
