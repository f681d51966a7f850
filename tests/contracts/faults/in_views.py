"""Stores of views with one thing wrong in writing, reading, checkpoints and roles."""

from msgspec.structs import replace

from gesta.ports.read_model import Filter, View, key_of
from gesta.stores.memory.read_model import MemoryViews
from gesta.testing.contracts.checkpoints import CheckpointContract as Checkpoint
from gesta.testing.contracts.checkpoints import RoleContract as Role
from gesta.testing.contracts.read_model import ViewsContract as Views
from gesta.testing.contracts.transactions import ProjectContract as Project
from tests.contracts.faults.planting import breaks


@breaks(Views.test_a_view_is_read_as_it_was_saved)
class LosesTheReason(MemoryViews):
    def _replace(self, view):
        super()._replace(View(replace(view.state, reason=""), view.payload))


@breaks(Views.test_a_newer_view_replaces_the_older)
class KeepsTheFirstView(MemoryViews):
    def _replace(self, view):
        if (view.state.flow, view.state.tenant, view.state.id) not in self._rows:
            super()._replace(view)


@breaks(Views.test_an_older_view_never_replaces_a_newer)
class KeepsTheLastView(MemoryViews):
    def _replace(self, view):
        super()._replace(view)
        self._rows[view.state.flow, view.state.tenant, view.state.id] = view


@breaks(Views.test_many_views_are_saved_and_read_at_once)
class CutsLargeBatches(MemoryViews):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views[:128], quarantined, moves)


@breaks(
    Views.test_a_view_is_shown_to_its_own_tenant_only,
    Views.test_one_id_under_two_tenants_makes_two_views,
)
class ShowsTheViewsOfOtherTenants(MemoryViews):
    async def get(self, keys):
        return {
            key_of(row.state): row
            for row in reversed(self._rows.values())
            for flow, _, id_ in keys
            if (row.state.flow, row.state.id) == (flow, id_)
        }


@breaks(Views.test_one_id_under_two_tenants_makes_two_views)
class FindsOneViewOfEachId(MemoryViews):
    async def get(self, keys):
        by_id = {key[2]: key for key in keys}
        return await super().get(list(by_id.values()))


@breaks(Views.test_a_view_is_shown_under_its_own_flow_only)
class IgnoresTheFlow(MemoryViews):
    async def get(self, keys):
        return {
            key_of(row.state): row
            for row in self._rows.values()
            for _, *own in keys
            if [row.state.tenant, row.state.id] == own
        }


@breaks(Views.test_the_newest_requests_of_a_tenant_are_listed_first)
class ListsTheOldestFirst(MemoryViews):
    async def find(self, chosen):
        return (await super().find(chosen))[::-1]


@breaks(Views.test_a_listing_is_narrowed_by_flow_and_status)
class NarrowsNoListing(MemoryViews):
    async def find(self, chosen):
        return await super().find(Filter(chosen.tenant))


@breaks(Views.test_a_listing_is_continued_before_the_last_id)
class StartsEveryListingAnew(MemoryViews):
    async def find(self, chosen):
        return await super().find(replace(chosen, before_id=None))


@breaks(Views.test_requests_are_counted_by_flow_and_status)
class CountsTheRequestsOfAll(MemoryViews):
    async def counts(self, tenant=None):
        return await super().counts()


@breaks(Views.test_a_status_that_nobody_is_in_any_more_is_not_counted)
class CountsNobody(MemoryViews):
    async def counts(self, tenant=None):
        return dict(self._counts[tenant])


@breaks(Views.test_what_is_parked_is_listed_newest_first_by_tenant_or_for_all)
class ShowsWhatOtherTenantsParked(MemoryViews):
    async def quarantined(self, tenant, limit):
        return await super().quarantined(None, limit)


@breaks(Views.test_what_is_parked_twice_is_one_entry)
class ParksTwice(MemoryViews):
    async def quarantined(self, tenant, limit):
        return (await super().quarantined(tenant, limit)) * 2


@breaks(Checkpoint.test_a_checkpoint_starts_at_0)
class StartsBeforeTheStart(MemoryViews):
    async def checkpoint(self, name):
        return self._checkpoints.get(name, -1)


@breaks(Checkpoint.test_views_and_checkpoint_move_together)
class MovesNoCheckpoint(MemoryViews):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views, quarantined, [])


@breaks(Checkpoint.test_who_does_not_know_the_checkpoint_writes_nothing)
class WritesBeforeItChecks(MemoryViews):
    def save_all(self, views, quarantined, moves):
        super().save_all(views, quarantined, [])
        return super().save_all([], [], moves)


@breaks(Checkpoint.test_a_checkpoint_that_was_never_moved_is_at_0_for_everybody)
class AcceptsAnyFirstMove(MemoryViews):
    def save_all(self, views, quarantined, moves):
        for move in moves:
            self._checkpoints.setdefault(move.name, move.before)
        return super().save_all(views, quarantined, moves)


@breaks(
    Checkpoint.test_of_projectors_that_race_one_moves_the_checkpoint,
    Project.test_a_projector_that_was_overtaken_writes_nothing,
)
class MovesTheCheckpointWithoutComparing(MemoryViews):
    def save_all(self, views, quarantined, moves):
        return super().save_all(
            views,
            quarantined,
            [replace(move, before=self._checkpoints.get(move.name, 0)) for move in moves],
        )


@breaks(Checkpoint.test_checkpoints_of_two_names_know_nothing_of_each_other)
class HasOneCheckpointForAll(MemoryViews):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views, quarantined, [replace(move, name="all") for move in moves])


@breaks(Checkpoint.test_a_checkpoint_begins_where_it_is_told_to_and_only_once)
class BeginsAgain(MemoryViews):
    async def begin(self, name, position):
        self._checkpoints[name] = position
        return position


@breaks(Checkpoint.test_all_checkpoints_are_told_by_name)
class TellsNoCheckpoint(MemoryViews):
    async def checkpoints(self):
        return (await super().checkpoints())[::-1]


@breaks(Checkpoint.test_what_keeps_a_checkpoint_from_moving_is_told_until_it_moves)
class NeverForgetsWhatWasWrong(MemoryViews):
    def save_all(self, views, quarantined, moves):
        stuck = dict(self._stuck)
        saved = super().save_all(views, quarantined, moves)
        self._stuck = stuck
        return saved


@breaks(Role.test_roles_are_told_with_their_owner_and_the_end_of_their_lease)
class TellsTheLastWhoAsked(MemoryViews):
    async def claim(self, name, owner, lease_seconds):
        answer = await super().claim(name, owner, lease_seconds)
        self._roles[name] = owner, self._roles[name][1]
        return answer


@breaks(
    Role.test_a_role_has_one_owner_until_its_lease_runs_out,
    Role.test_of_owners_that_race_for_a_role_one_gets_it,
)
class GivesARoleToEverybody(MemoryViews):
    async def claim(self, name, owner, lease_seconds):
        return True


@breaks(
    Role.test_the_owner_of_a_role_renews_its_lease,
    Role.test_a_role_can_be_given_up_by_a_lease_of_no_length,
)
class NeverChangesTheEndOfARole(MemoryViews):
    async def claim(self, name, owner, lease_seconds):
        holder, end_ms = self._roles.get(name, ("", 0))
        return (
            True
            if holder == owner and end_ms > self._runtime.now_ms()
            else await super().claim(name, owner, lease_seconds)
        )


@breaks(Role.test_two_roles_know_nothing_of_each_other)
class HasOneRoleForAll(MemoryViews):
    async def claim(self, name, owner, lease_seconds):
        return await super().claim("all", owner, lease_seconds)


@breaks(Checkpoint.test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay)
class ForgetsNobody(MemoryViews):
    async def forget(self, name):
        pass


@breaks(Checkpoint.test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay)
class ForgetsEverybody(MemoryViews):
    async def forget(self, name):
        self._checkpoints.clear()
