"""Transactions with one thing wrong."""

from msgspec.structs import replace

from gesta.ports.event_store import Appended
from gesta.ports.job_queue import Ack, Drop, Release
from gesta.ports.transactions import Recording
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.testing.contracts.transactions import ProjectContract as Project
from gesta.testing.contracts.transactions import RecordContract as Record
from tests.contracts.faults.planting import breaks


@breaks(Project.test_views_jobs_and_checkpoint_are_written_together)
class PutsNoJobs(MemoryTransactions):
    async def project(self, views, jobs, quarantined, moves, free_slots=None):
        return await super().project(views, [], quarantined, moves, free_slots)


@breaks(
    Project.test_a_projector_that_was_overtaken_writes_nothing,
    Project.test_of_projectors_that_race_one_dispatches,
)
class PutsJobsBeforeItChecks(MemoryTransactions):
    async def project(self, views, jobs, quarantined, moves, free_slots=None):
        await self._queue.put(jobs)
        return await super().project(views, [], quarantined, moves, free_slots)


@breaks(Project.test_a_job_that_is_live_already_stops_nothing)
class StopsAtALiveJob(MemoryTransactions):
    async def project(self, views, jobs, quarantined, moves, free_slots=None):
        if await self._queue.find([job.id for job in jobs]):
            return False
        return await super().project(views, jobs, quarantined, moves, free_slots)


@breaks(
    Record.test_events_are_appended_and_their_job_is_acked,
    Record.test_each_entry_meets_what_the_ones_before_it_wrote,
)
class AcksInWordOnly(MemoryTransactions):
    def _record_one(self, entry):
        if entry.append is None or not isinstance(entry.settlement, Ack):
            return super()._record_one(entry)
        return replace(super()._record_one(replace(entry, settlement=None)), settled="done")


@breaks(Record.test_events_are_appended_and_their_job_is_released)
class AcksWhatWasToBeReleased(MemoryTransactions):
    def _record_one(self, entry):
        if isinstance(entry.settlement, Release):
            entry = replace(entry, settlement=Ack(entry.settlement.job_id, entry.settlement.token))
        return super()._record_one(entry)


@breaks(
    Record.test_refused_events_leave_the_job_with_its_holder,
    Record.test_a_claim_that_is_taken_leaves_the_job_with_its_holder,
    Record.test_of_workers_that_race_for_a_version_one_records,
    Record.test_refused_events_undo_the_drop,
)
class SettlesBeforeItAppends(MemoryTransactions):
    def _record_one(self, entry):
        settled = self._queue.settle_one(entry.settlement)
        return replace(super()._record_one(replace(entry, settlement=None)), settled=settled)


@breaks(
    Record.test_a_lost_lease_does_not_stop_evidence_from_being_recorded,
    Record.test_a_lost_lease_does_not_touch_the_other_entries,
)
class DropsEvidenceWithTheLease(MemoryTransactions):
    def _record_one(self, entry):
        lost = entry.settlement is not None and self._queue.judge(entry.settlement) == "lost"
        return Recording(None, "lost") if lost else super()._record_one(entry)


@breaks(Record.test_events_without_a_job_and_a_job_without_events_are_recorded_too)
class WantsBothOrNothing(MemoryTransactions):
    def _record_one(self, entry):
        return (
            Recording(None, None)
            if None in (entry.append, entry.settlement)
            else super()._record_one(entry)
        )


@breaks(Record.test_a_dropped_job_and_its_last_events_go_together)
class DropsInWordOnly(MemoryTransactions):
    def _record_one(self, entry):
        return replace(super()._record_one(replace(entry, settlement=None)), settled="done")


@breaks(Record.test_where_there_is_no_job_to_drop_the_events_are_appended)
class NeedsAJobToDrop(MemoryTransactions):
    def _record_one(self, entry):
        absent = self._queue.judge(entry.settlement) == "absent"
        return Recording(None, "absent") if absent else super()._record_one(entry)


@breaks(Record.test_a_leased_job_stops_the_events_of_a_drop)
class CancelsUnderARunningAttempt(MemoryTransactions):
    def _record_one(self, entry):
        assert isinstance(entry.settlement, Drop)
        return Recording(self._events.append_one(entry.append), "active")


@breaks(
    Record.test_a_refused_entry_does_not_touch_the_others,
    Record.test_a_refused_journal_refuses_no_other_entry_of_its_batch,
)
class RefusesAllForOne(MemoryTransactions):
    async def record(self, entries, projection=None):
        recordings = []
        for entry in entries:
            recordings.append(self._record_one(entry))
            if not isinstance(recordings[-1].verdict, Appended):
                break
        return recordings


@breaks(Record.test_a_large_batch_of_entries_is_recorded)
class CutsLargeBatches(MemoryTransactions):
    async def record(self, entries, projection=None):
        return await super().record(entries[:128])
