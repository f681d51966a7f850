"""Stores of views with one thing wrong in shadows and their swap."""

from msgspec.structs import replace

from gesta.ports.checkpoints import dispatched_of
from gesta.stores.memory.read_model import MemoryReadModel, MemoryShadow
from gesta.testing.contracts.read_model import ShadowContract as Shadow
from gesta.testing.contracts.read_model import UndecidedViewsContract as Undecided
from tests.contracts.faults.planting import breaks


@breaks(
    Shadow.test_a_shadow_shows_what_was_saved_in_it_and_nothing_else,
    Shadow.test_a_shadow_changes_nothing_before_the_swap,
)
class BuildsInPlace(MemoryReadModel):
    async def shadow(self):
        return MemoryShadow(self, self)


@breaks(Shadow.test_after_the_swap_the_views_are_those_of_the_shadow)
class KeepsTheOldIndexes(MemoryReadModel):
    def take_over(self, shadow, names, position, quarantined):
        by_tenant = self._by_tenant
        leased = super().take_over(shadow, names, position, quarantined)
        for tenant, index in by_tenant.items():
            for key in index.ascending():
                if key[1] in self._rows:
                    self._by_tenant[tenant].add(key)
        self._counts = shadow._counts.__class__(shadow._counts.default_factory)
        return leased


@breaks(Shadow.test_after_the_swap_views_are_saved_as_before)
class GoesOnWithTheOldIndex(MemoryReadModel):
    def take_over(self, shadow, names, position, quarantined):
        rows = self._rows
        leased = super().take_over(shadow, names, position, quarantined)
        shadow._rows = self._rows = {key: row for key, row in self._rows.items() if key not in rows}
        return leased


class _Counting(MemoryReadModel):
    """Gives a fault a chance to undo what the swap did to one checkpoint."""

    def take_over(self, shadow, names, position, quarantined):
        before = dict(self._checkpoints)
        leased = super().take_over(shadow, names, position, quarantined)
        self._spoil(before, names[0])
        return leased

    def _spoil(self, before, name):
        raise AssertionError("a fault says what goes wrong")


@breaks(
    Shadow.test_the_swap_turns_the_checkpoint_back_and_remembers_where_jobs_had_been_put,
    Shadow.test_a_fold_onto_the_old_views_is_refused_after_the_swap,
)
class LeavesTheCheckpoint(_Counting):
    def _spoil(self, before, name):
        self._checkpoints[name] = before.get(name, 0)


@breaks(Shadow.test_the_swap_turns_the_checkpoint_back_and_remembers_where_jobs_had_been_put)
class TakesTheFurthestForDispatched(_Counting):
    """As it once was: the checkpoint of a subscription is no sign that jobs were put."""

    def _spoil(self, before, name):
        self._checkpoints[dispatched_of(name)] = max(before.values(), default=0)


@breaks(Shadow.test_a_second_swap_before_the_projector_caught_up_forgets_nothing)
class ForgetsTheFirstSwap(_Counting):
    def _spoil(self, before, name):
        self._checkpoints[dispatched_of(name)] = before.get(name, 0)


@breaks(Shadow.test_a_shadow_that_is_ahead_of_the_projector_is_refused)
class SwapsInAnyCase(MemoryReadModel):
    def take_over(self, shadow, names, position, quarantined):
        for name in names:
            self._checkpoints[name] = max(position, self._checkpoints.get(name, 0))
        return super().take_over(shadow, names, position, quarantined)


@breaks(Shadow.test_a_swap_replaces_quarantined_events_and_keeps_quarantined_jobs)
class ForgetsParkedJobs(MemoryReadModel):
    def take_over(self, shadow, names, position, quarantined):
        self._quarantined.clear()
        return super().take_over(shadow, names, position, quarantined)


@breaks(Shadow.test_a_shadow_that_was_left_is_forgotten_by_the_next)
class GoesOnWithWhatWasLeft(MemoryReadModel):
    async def shadow(self):
        self._left = getattr(self, "_left", None) or await super().shadow()
        return self._left


@breaks(Undecided.test_what_waits_for_a_person_is_counted_with_the_time_of_the_oldest)
class CountsWhatWillBeAsked(MemoryReadModel):
    async def undecided(self):
        unknown = [
            row.state.updated_at for row in self._rows.values() if row.state.status == "unknown"
        ]
        return len(unknown), min(unknown, default=None)


@breaks(Undecided.test_unknown_and_recently_failed_requests_are_counted_by_flow)
class CountsOldFailures(MemoryReadModel):
    async def unsettled(self, failed_since_ms):
        return await super().unsettled(0)


@breaks(Shadow.test_a_fold_before_the_swap_is_refused_even_at_the_position_after_it)
class LooksAtThePlaceOnly(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        return super().save_all(
            views, quarantined, [replace(move, dispatched=None) for move in moves]
        )
