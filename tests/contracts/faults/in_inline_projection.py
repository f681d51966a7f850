"""Commits that project what they append, with one thing wrong."""

from gesta.ports.checkpoints import Move
from gesta.ports.transactions import Projection
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.testing.contracts.inline_projection import InlineProjectionContract as InlineProjection
from gesta.testing.contracts.inline_projection import InlineProjectionFenceContract as AtOnceFence
from tests.contracts.faults.planting import breaks


@breaks(InlineProjection.test_events_view_job_and_checkpoints_are_written_together)
class PutsNoJobsAtOnce(MemoryTransactions):
    async def append(self, appends, projection):
        projection.jobs = []
        return await super().append(appends, projection)


@breaks(
    InlineProjection.test_a_checkpoint_before_a_foreign_event_is_not_moved,
    InlineProjection.test_one_checkpoint_at_another_position_keeps_all_from_moving,
)
class ProjectsPastOthers(MemoryTransactions):
    def _project(self, appends, projection, before):
        for name in projection.checkpoints:
            self._views._checkpoints[name] = before
        super()._project(appends, projection, before)


class _Unmarked(Projection):
    def moves(self, before, after):
        return [Move(name, before, after) for name in self.checkpoints]


@breaks(InlineProjection.test_a_swap_of_the_views_stops_it)
class DoesNotSeeASwap(MemoryTransactions):
    def _project(self, appends, projection, before):
        unmarked = _Unmarked(projection.views, projection.jobs, projection.checkpoints)
        super()._project(appends, unmarked, before)
        projection.reached = unmarked.reached


@breaks(
    InlineProjection.test_a_refused_append_among_them_leaves_them_to_the_projector,
    InlineProjection.test_an_append_that_stood_there_already_is_not_projected_again,
)
class ProjectsWhateverWasAppended(MemoryTransactions):
    def _project(self, appends, projection, before):
        written = self._events.length - before
        super()._project(appends[:written], projection, before)


@breaks(InlineProjection.test_one_follows_the_other)
class StopsShortOfTheEnd(MemoryTransactions):
    def _project(self, appends, projection, before):
        super()._project(appends, projection, before)
        if projection.reached is not None:
            for name in projection.checkpoints:
                self._views._checkpoints[name] -= 1


@breaks(InlineProjection.test_an_outcome_is_recorded_acked_and_shown_together)
class RecordsWithoutShowing(MemoryTransactions):
    async def record(self, entries, projection=None):
        return await super().record(entries)


@breaks(InlineProjection.test_what_is_recorded_otherwise_comes_to_the_same)
class ShowsWithoutMoving(MemoryTransactions):
    async def record(self, entries, projection=None):
        recordings = await super().record(entries)
        if projection is not None:
            self._views.save_all(projection.views, [], [])
        return recordings


@breaks(InlineProjection.test_a_large_batch_is_appended_and_projected)
class ProjectsOnlyTheFirst(MemoryTransactions):
    async def append(self, appends, projection):
        projection.jobs = projection.jobs[:128]
        return await super().append(appends, projection)


@breaks(AtOnceFence.test_a_fence_that_keeps_jobs_out_keeps_the_whole_commit_out)
class PutsJobsThroughAFence(MemoryTransactions):
    async def append(self, appends, projection):
        before, verdicts = (
            self._events.length,
            [self._events.append_one(append) for append in appends],
        )
        self._project(appends, projection, before)
        return verdicts
