"""Stores of views that mislead the sweep."""

from msgspec.structs import replace

from gesta.ports.read_model import Key
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.testing.contracts.sweep_index import DueViewsContract as Due
from gesta.testing.contracts.sweep_index import StaleViewsContract as Stale
from tests.contracts.faults.planting import breaks


@breaks(Due.test_a_request_is_due_from_its_moment_on_and_not_before)
class IsOneLate(MemoryReadModel):
    async def due(self, now_ms, limit):
        return await super().due(now_ms - 1, limit)


@breaks(Due.test_due_requests_come_earliest_first)
class TellsTheLatestFirst(MemoryReadModel):
    async def due(self, now_ms, limit):
        found, next_at = await super().due(now_ms, limit)
        return found[::-1], next_at


@breaks(Due.test_no_more_due_requests_are_returned_than_asked_for)
class IgnoresTheLimit(MemoryReadModel):
    async def due(self, now_ms, limit):
        return await super().due(now_ms, 1000)


@breaks(Due.test_the_time_of_the_next_due_request_is_returned)
class TellsNothingOfTheNext(MemoryReadModel):
    async def due(self, now_ms, limit):
        return (await super().due(now_ms, limit))[0], None


@breaks(Due.test_a_request_that_needs_no_look_is_never_due)
class LooksAtEverybody(MemoryReadModel):
    def _schedule(self, key, sweep_at_ms):
        super()._schedule(key, sweep_at_ms or 0)


@breaks(Due.test_a_change_of_the_request_moves_its_moment)
class KeepsTheFirstMoment(MemoryReadModel):
    def _schedule(self, key, sweep_at_ms):
        super()._schedule(key, self._sweep_at.get(key, sweep_at_ms))


@breaks(
    Due.test_a_postponed_request_is_due_again_at_the_later_moment,
    Due.test_a_request_may_be_postponed_for_good,
)
class PostponesNothing(MemoryReadModel):
    async def postpone(self, looked_at):
        pass


@breaks(Due.test_a_request_that_has_changed_since_is_not_postponed)
class PostponesWhatHasChanged(MemoryReadModel):
    async def postpone(self, looked_at):
        await super().postpone(
            [
                (self._rows[state.flow, state.tenant, state.id].state, later)
                for state, later in looked_at
            ]
        )


@breaks(Due.test_a_postponed_request_that_changes_is_due_by_its_own_moment)
class PostponesForEver(MemoryReadModel):
    def __init__(self, runtime):
        super().__init__(runtime)
        self._scheduled = set[Key]()

    def _schedule(self, key, sweep_at_ms):
        super()._schedule(key, None if key in self._scheduled else sweep_at_ms)
        self._scheduled.add(key)


@breaks(Stale.test_a_request_that_has_wanted_a_job_for_long_is_stale)
class SeesQueuedRequestsOnly(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        found, following = await super().stale(before_ms, after, limit)
        return [state for state in found if state.status == "queued"], following


@breaks(Stale.test_a_request_that_changed_lately_is_not_stale)
class IgnoresTheLastChange(MemoryReadModel):
    def _replace(self, view):
        super()._replace(replace(view, state=replace(view.state, updated_at=0)))


@breaks(Stale.test_a_request_whose_job_was_due_lately_is_not_stale)
class IgnoresWhenTheJobWasDue(MemoryReadModel):
    def _replace(self, view):
        super()._replace(replace(view, state=replace(view.state, due_at=None)))


@breaks(
    Stale.test_a_request_that_wants_no_job_is_not_stale,
    Stale.test_a_request_that_came_to_its_end_is_no_longer_stale,
)
class ThinksThatEverybodyWantsAJob(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        return [row.state for row in self._rows.values() if row.state.updated_at < before_ms][
            :limit
        ], None


@breaks(Stale.test_a_far_request_is_stale_once_the_sweep_has_looked_at_it)
class ForgetsFarRequests(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        found, following = await super().stale(before_ms, after, limit)
        return [state for state in found if not state.is_far], following


@breaks(Stale.test_a_page_without_any_does_not_look_like_the_end)
class TakesAnEmptyPageForTheEnd(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        found, following = await super().stale(before_ms, after, limit)
        return found, following if found else None


class _InTheOrderOfChanges(MemoryReadModel):
    def _in_order(self, before_ms):
        states = [
            row.state
            for row in self._rows.values()
            if row.state.wants is not None and row.state.updated_at < before_ms
        ]
        return sorted(states, key=lambda state: (state.updated_at, state.id))


@breaks(Stale.test_pages_of_any_size_go_through_all_and_show_each_once)
class GoesOnBehindTheMillisecond(_InTheOrderOfChanges):
    async def stale(self, before_ms, after, limit):
        page = [state for state in self._in_order(before_ms) if (state.updated_at,) > after][:limit]
        return page, (page[-1].updated_at,) if len(page) == limit else None


@breaks(Stale.test_pages_of_any_size_go_through_all_and_show_each_once)
class GoesOnWithTheLastOne(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        found, following = await super().stale(before_ms, after, limit)
        shown = [entry for entry in self._wanting.ascending() if entry == after]
        return [self._rows[key].state for _, key in shown] + found, following


@breaks(Stale.test_a_walk_misses_no_unchanged_request_while_others_change)
class CountsHowManyItHasShown(_InTheOrderOfChanges):
    async def stale(self, before_ms, after, limit):
        start = after[0] if after else 0
        page = self._in_order(before_ms)[start : start + limit]
        return page, (start + limit,) if len(page) == limit else None


@breaks(Stale.test_a_page_has_no_more_than_were_asked_for)
class ShowsAllAtOnce(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        return await super().stale(before_ms, after, 1000)


@breaks(Stale.test_requests_of_one_id_are_all_shown_wherever_a_page_ends)
class GoesOnBehindTheId(MemoryReadModel):
    async def stale(self, before_ms, after, limit):
        return await super().stale(before_ms, (f"{after[0]}\0",) if after else after, limit)
