"""Queues with one thing wrong in who goes first."""

from gesta.ports.job_queue import Release
from gesta.stores.memory.job_queue import MemoryJobQueue, _Queue
from gesta.testing.contracts.fair_queue import FairQueueContract as Turns
from gesta.testing.contracts.job_holds import JobHoldsContract as Holds
from tests.contracts.faults.planting import breaks


class Reordering(MemoryJobQueue):
    def _due_rows(self, flow, free):
        rows = self.reordered(super()._due_rows(flow, 1_000_000))
        for row in rows[free:]:
            self._enqueue(row)
        return rows[:free]

    def reordered(self, rows):
        return rows


@breaks(
    Turns.test_the_jobs_of_two_tenants_alternate,
    Turns.test_a_flood_queues_behind_itself,
    Turns.test_jobs_that_fall_due_together_queue_behind_themselves,
    Turns.test_released_jobs_queue_behind_themselves,
    Holds.test_unheld_jobs_queue_behind_themselves,
)
class ServesInTheOrderOfArrival(Reordering):
    def reordered(self, rows):
        return sorted(rows, key=lambda row: row.job.id)


@breaks(
    Turns.test_a_flood_of_urgent_jobs_does_not_pass_another_tenant,
    Turns.test_the_least_urgent_job_does_not_starve,
)
class ServesTheUrgentFirstWhoseverTheyAre(Reordering):
    def reordered(self, rows):
        return sorted(rows, key=lambda row: row.job.priority)


@breaks(Turns.test_an_idle_tenant_saves_up_no_turns)
class HasNoPresent(MemoryJobQueue):
    def _make_ready(self, external_queue):
        present, external_queue.present = external_queue.present, 0
        super()._make_ready(external_queue)
        external_queue.present = present


@breaks(Turns.test_a_tenants_jobs_keep_their_order)
class ServesATenantsNewestFirst(Reordering):
    def reordered(self, rows):
        return rows[::-1]


@breaks(Turns.test_an_urgent_job_passes_its_own_tenants_flood)
class HasOneLineForAllPriorities(MemoryJobQueue):
    def _make_ready(self, external_queue):
        super()._make_ready(external_queue)
        end = max(external_queue.ends.values(), default=0)
        external_queue.ends |= {
            (flow, tenant, other): end
            for flow, tenant, _ in list(external_queue.ends)
            for other in range(1, 11)
        }


@breaks(Turns.test_a_less_urgent_job_passes_none_of_its_own_tenant)
class ServesTheLeastUrgentFirst(Reordering):
    def reordered(self, rows):
        return sorted(rows, key=lambda row: -row.job.priority)


@breaks(Turns.test_a_job_that_waits_for_its_time_takes_no_turn_before)
class GivesTurnsToThoseWhoWait(MemoryJobQueue):
    def put_one(self, job):
        created = super().put_one(job)
        external_queue = self._queues.setdefault(job.flow, _Queue())
        line = self._rows[job.id].line
        if job.due_ms > self._runtime.now_ms():
            external_queue.ends[line] = external_queue.ends.get(line, external_queue.present) + 1
        return created


@breaks(Turns.test_released_jobs_queue_behind_themselves)
class ReleasesAheadOfAll(MemoryJobQueue):
    def settle_one(self, settlement):
        settled = super().settle_one(settlement)
        if isinstance(settlement, Release):
            self._rows[settlement.job_id].turn = 0
        return settled


@breaks(Turns.test_a_job_of_an_expired_lease_keeps_its_turn)
class LetsTheDeadQueueAnew(MemoryJobQueue):
    def _lease_out(self, row, token):
        leased = super()._lease_out(row, token)
        row.turn = None
        return leased
