"""Stores of views with one thing wrong in writing, reading, checkpoints and roles."""

from msgspec.structs import replace

from gesta.ports.read_model import Filter, View, key_of
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.testing.contracts.checkpoints import CheckpointContract as Checkpoint
from gesta.testing.contracts.leases import LeasesContract as Role
from gesta.testing.contracts.read_model import ReadModelContract as ReadModel
from gesta.testing.contracts.transactions import ProjectContract as Project
from tests.contracts.faults.planting import breaks


@breaks(ReadModel.test_a_view_is_read_as_it_was_saved)
class LosesTheReason(MemoryReadModel):
    def _replace(self, view):
        super()._replace(View(replace(view.state, reason=""), view.payload))


@breaks(ReadModel.test_a_newer_view_replaces_the_older)
class KeepsTheFirstView(MemoryReadModel):
    def _replace(self, view):
        if (view.state.flow, view.state.tenant, view.state.id) not in self._rows:
            super()._replace(view)


@breaks(ReadModel.test_an_older_view_never_replaces_a_newer)
class KeepsTheLastView(MemoryReadModel):
    def _replace(self, view):
        super()._replace(view)
        self._rows[view.state.flow, view.state.tenant, view.state.id] = view


@breaks(ReadModel.test_a_large_batch_of_views_is_saved_and_read)
class CutsLargeBatches(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views[:128], quarantined, moves)


@breaks(
    ReadModel.test_a_view_is_shown_to_its_own_tenant_only,
    ReadModel.test_one_id_under_two_tenants_makes_two_views,
)
class ShowsTheViewsOfOtherTenants(MemoryReadModel):
    async def get(self, keys):
        return {
            key_of(row.state): row
            for row in reversed(self._rows.values())
            for flow, _, id_ in keys
            if (row.state.flow, row.state.id) == (flow, id_)
        }


@breaks(ReadModel.test_one_id_under_two_tenants_makes_two_views)
class FindsOneViewOfEachId(MemoryReadModel):
    async def get(self, keys):
        by_id = {key[2]: key for key in keys}
        return await super().get(list(by_id.values()))


@breaks(ReadModel.test_a_view_is_shown_under_its_own_flow_only)
class IgnoresTheFlow(MemoryReadModel):
    async def get(self, keys):
        return {
            key_of(row.state): row
            for row in self._rows.values()
            for _, *own in keys
            if [row.state.tenant, row.state.id] == own
        }


@breaks(ReadModel.test_the_newest_requests_of_a_tenant_are_listed_first)
class ListsTheOldestFirst(MemoryReadModel):
    async def find(self, chosen):
        return (await super().find(chosen))[::-1]


@breaks(ReadModel.test_a_listing_is_narrowed_by_flow_and_status)
class NarrowsNoListing(MemoryReadModel):
    async def find(self, chosen):
        return await super().find(Filter(chosen.tenant))


@breaks(ReadModel.test_a_listing_is_continued_before_the_last_id)
class StartsEveryListingAnew(MemoryReadModel):
    async def find(self, chosen):
        return await super().find(replace(chosen, before_id=None))


@breaks(ReadModel.test_requests_are_counted_by_flow_and_status)
class CountsTheRequestsOfAll(MemoryReadModel):
    async def counts(self, tenant=None):
        return await super().counts()


@breaks(ReadModel.test_a_status_without_requests_is_not_counted)
class CountsNobody(MemoryReadModel):
    async def counts(self, tenant=None):
        return dict(self._counts[tenant])


@breaks(ReadModel.test_quarantined_items_are_listed_newest_first_by_tenant_or_for_all)
class ShowsWhatOtherTenantsParked(MemoryReadModel):
    async def quarantined(self, tenant, limit):
        return await super().quarantined(None, limit)


@breaks(ReadModel.test_an_item_quarantined_twice_is_one_entry)
class ParksTwice(MemoryReadModel):
    async def quarantined(self, tenant, limit):
        return (await super().quarantined(tenant, limit)) * 2


@breaks(Checkpoint.test_a_checkpoint_starts_at_0)
class StartsBeforeTheStart(MemoryReadModel):
    async def position(self, name):
        return self._checkpoints.get(name, -1)


@breaks(ReadModel.test_views_and_checkpoint_move_together)
class MovesNoCheckpoint(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views, quarantined, [])


@breaks(ReadModel.test_a_projection_from_an_unknown_checkpoint_writes_nothing)
class WritesBeforeItChecks(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        super().save_all(views, quarantined, [])
        return super().save_all([], [], moves)


@breaks(Checkpoint.test_a_checkpoint_that_was_never_moved_is_at_0)
class AcceptsAnyFirstMove(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        for move in moves:
            self._checkpoints.setdefault(move.name, move.before)
        return super().save_all(views, quarantined, moves)


@breaks(
    ReadModel.test_of_projectors_that_race_one_moves_the_checkpoint,
    Project.test_a_projector_that_was_overtaken_writes_nothing,
)
class MovesTheCheckpointWithoutComparing(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        return super().save_all(
            views,
            quarantined,
            [replace(move, before=self._checkpoints.get(move.name, 0)) for move in moves],
        )


@breaks(Checkpoint.test_checkpoints_of_two_names_know_nothing_of_each_other)
class HasOneCheckpointForAll(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        return super().save_all(views, quarantined, [replace(move, name="all") for move in moves])


@breaks(Checkpoint.test_a_checkpoint_begins_at_the_given_position_and_only_once)
class BeginsAgain(MemoryReadModel):
    async def begin(self, name, position):
        self._checkpoints[name] = position
        return position


@breaks(Checkpoint.test_all_checkpoints_are_listed_by_name)
class TellsNoCheckpoint(MemoryReadModel):
    async def checkpoints(self):
        return (await super().checkpoints())[::-1]


@breaks(Checkpoint.test_the_error_of_a_checkpoint_is_listed_until_it_moves)
class NeverForgetsWhatWasWrong(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        stuck = dict(self._stuck)
        saved = super().save_all(views, quarantined, moves)
        self._stuck = stuck
        return saved


@breaks(Role.test_roles_are_listed_with_owner_and_end_of_lease)
class TellsTheLastWhoAsked(MemoryReadModel):
    async def claim(self, name, owner, lease_seconds):
        answer = await super().claim(name, owner, lease_seconds)
        self._roles[name] = owner, self._roles[name][1]
        return answer


@breaks(
    Role.test_a_role_has_one_owner_until_its_lease_runs_out,
    Role.test_of_concurrent_owners_of_a_role_one_gets_it,
)
class GivesARoleToEverybody(MemoryReadModel):
    async def claim(self, name, owner, lease_seconds):
        return True


@breaks(
    Role.test_the_owner_of_a_role_renews_its_lease,
    Role.test_a_role_can_be_given_up_by_a_lease_of_no_length,
)
class NeverChangesTheEndOfARole(MemoryReadModel):
    async def claim(self, name, owner, lease_seconds):
        holder, end_ms = self._roles.get(name, ("", 0))
        return (
            True
            if holder == owner and end_ms > self._runtime.now_ms()
            else await super().claim(name, owner, lease_seconds)
        )


@breaks(Role.test_roles_are_independent)
class HasOneRoleForAll(MemoryReadModel):
    async def claim(self, name, owner, lease_seconds):
        return await super().claim("all", owner, lease_seconds)


@breaks(Checkpoint.test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay)
class ForgetsNobody(MemoryReadModel):
    async def forget(self, name):
        pass


@breaks(Checkpoint.test_a_checkpoint_that_was_forgotten_is_gone_and_the_others_stay)
class ForgetsEverybody(MemoryReadModel):
    async def forget(self, name):
        self._checkpoints.clear()
