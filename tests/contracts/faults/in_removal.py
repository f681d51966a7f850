"""Stores with one thing wrong in finding old requests and removing them."""

from gesta.ports.event_store import Stale
from gesta.ports.transactions import NO_SECRETS
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.testing.contracts.removal import LogRemovalContract
from gesta.testing.contracts.removal import RemovalContract as Removal
from gesta.testing.contracts.sweep_index import OldViewsContract as Old
from gesta.testing.harnesses.memory import Harness
from tests.contracts.faults.planting import breaks


@breaks(
    Removal.test_an_ended_request_goes_with_its_events_and_its_view,
    Removal.test_its_secret_is_destroyed_with_it_and_no_other,
    Removal.test_a_large_batch_of_requests_is_removed,
    Removal.test_quarantined_events_are_removed_with_their_request,
    Removal.test_a_late_append_to_what_is_gone_is_refused,
    Removal.test_a_shadow_made_before_is_not_swapped_in,
    LogRemovalContract.test_removed_events_are_not_in_the_log,
)
class RemovesNothing(MemoryTransactions):
    async def remove(self, ended, secrets=NO_SECRETS):
        return 0


@breaks(Removal.test_its_secret_is_destroyed_with_it_and_no_other)
class KeepsTheSecret(MemoryTransactions):
    async def remove(self, ended, secrets=NO_SECRETS):
        return await super().remove(ended)


@breaks(Removal.test_its_key_stays_claimed)
class ForgetsTheKey(MemoryEventStore):
    def remove(self, stream, version, passed):
        self._claims.clear()
        return super().remove(stream, version, passed)


@breaks(Removal.test_positions_go_on_behind_what_is_gone)
class GivesPositionsAgain(MemoryEventStore):
    def remove(self, stream, version, passed):
        gone = super().remove(stream, version, passed)
        self._log = [event for event in self._log if event is not None]
        return gone


@breaks(Removal.test_a_request_that_has_changed_since_is_left_alone)
class RemovesWhateverItIs(MemoryEventStore):
    def remove(self, stream, version, passed):
        return super().remove(stream, len(self._streams[stream]), passed)


@breaks(Removal.test_events_that_a_follower_has_not_passed_are_not_removed)
class WaitsForTheProjectorOnly(MemoryReadModel):
    def passed_by_all(self):
        return self._checkpoints.get("projector/0", 0)


@breaks(Removal.test_a_shadow_made_before_is_not_swapped_in)
class CountsNoRemoval(MemoryReadModel):
    def remove(self, state, stream):
        super().remove(state, stream)
        self.removals = 0


@breaks(Removal.test_a_late_append_to_what_is_gone_is_refused)
class AppendsToNothing(MemoryEventStore):
    def append_one(self, append):
        verdict = super().append_one(append)
        return verdict if verdict != Stale(0) else Stale(append.expected)


@breaks(Removal.test_what_is_gone_stays_gone_after_a_restart)
class BringsBackWhatWasRemoved(Harness):
    async def open(self):
        self.database.events._streams |= {
            name: list(self._seen.get(name, [])) for name in getattr(self, "_seen", {})
        }
        await super().open()
        self._seen: dict[str, list] = {}  # type: ignore[type-arg]
        write = self.database.events._write

        def remember(append):
            write(append)
            self._seen[append.stream] = list(self.database.events._streams[append.stream])

        setattr(self.database.events, "_write", remember)  # noqa: B010 -- one object, not its class


@breaks(
    Old.test_old_ended_requests_of_all_tenants_are_found,
    Old.test_small_steps_go_through_all,
)
class FindsTheFirstOnly(MemoryReadModel):
    async def old(self, before_ms, after, limit, foreign=()):
        found, _ = await super().old(before_ms, after, limit, foreign)
        return found[:1], None


@breaks(Old.test_open_or_recently_changed_requests_are_not_old)
class TellsWhatIsOpen(MemoryReadModel):
    async def old(self, before_ms, after, limit, foreign=()):
        _, place = await super().old(before_ms, after, limit, foreign)
        return [row.state for row in self._rows.values()], place


@breaks(Old.test_what_was_made_lately_is_passed_over)
class LooksAtEverything(MemoryReadModel):
    def _made_before(self, tenant, at_ms, foreign):
        return super()._made_before(tenant, 2**47, foreign)


@breaks(Old.test_foreign_ids_show_no_age)
class TrustsForeignIds(MemoryReadModel):
    def _made_before(self, tenant, at_ms, foreign):
        return super()._made_before(tenant, at_ms, ())
