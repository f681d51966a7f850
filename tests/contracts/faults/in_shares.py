"""Stores with one thing wrong in dividing the log, and in dividing roles among those who follow
it.
"""

from gesta.ports.event_store import Share
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.testing.contracts.event_shares import EventSharesContract as Shares
from gesta.testing.contracts.event_shares import LargeEventSharesContract
from gesta.testing.contracts.leases import LiveProcessesContract as Live
from gesta.testing.contracts.leases import SharedLeasesContract as Parts
from gesta.testing.contracts.read_model import ShadowContract as Shadow
from gesta.testing.contracts.transactions import ProjectContract as Project
from tests.contracts.faults.planting import breaks


@breaks(
    Shares.test_each_event_is_in_the_partition_of_its_stream,
    Shares.test_events_of_a_share_are_whole_and_in_the_order_of_the_log,
    Shares.test_a_follower_of_a_share_skips_nothing_while_others_append,
)
class HashesDifferently(MemoryEventStore):
    async def follow_share(self, after, limit, share):
        found = await self.follow(after, limit)
        return [one for one in found if len(one.stream) % share.count in share.numbers], (
            found[-1].position if found else after
        )


@breaks(Shares.test_it_stays_there_after_a_restart)
class HashesByHowOftenItWasAsked(MemoryEventStore):
    asked = 0

    async def follow_share(self, after, limit, share):
        turned = Share(
            share.count, tuple((number + self.asked // 8) % share.count for number in share.numbers)
        )
        self.asked += 1
        return await super().follow_share(after, limit, turned)


@breaks(Shares.test_small_steps_go_over_what_is_not_ours_and_miss_nothing)
class StopsAtWhatIsNotOurs(MemoryEventStore):
    async def follow_share(self, after, limit, share):
        found, _ = await super().follow_share(after, limit, share)
        return found, found[-1].position if found else after


@breaks(LargeEventSharesContract.test_a_look_ends_with_the_event_that_makes_it_full_and_says_so)
class ForgetsThatItStoppedEarly(MemoryEventStore):
    async def follow_share(self, after, limit, share):
        found, reached = await super().follow_share(after, limit, share)
        return found, max(reached, min(after + limit, self.length))


@breaks(Shares.test_at_the_end_a_share_is_empty_and_the_position_stays)
class GoesBeyondTheEnd(MemoryEventStore):
    async def follow_share(self, after, limit, share):
        found, _ = await super().follow_share(after, limit, share)
        return found, after + limit


@breaks(Project.test_several_checkpoints_are_moved_together_or_not_at_all)
class MovesThoseThatFit(MemoryReadModel):
    def save_all(self, views, quarantined, moves):
        fitting = [move for move in moves if self._fits(move)]
        return super().save_all(views, quarantined, fitting) and len(fitting) == len(moves)


@breaks(Project.test_each_checkpoint_is_compared_with_its_own_mark)
class ComparesWithTheFirstMark(MemoryReadModel):
    def _fits(self, move):
        marks = [
            position
            for name, position in self._checkpoints.items()
            if name.startswith("dispatched")
        ]
        return self._checkpoints.get(move.name, 0) == move.before and move.dispatched in (
            None,
            max(marks, default=0),
        )


@breaks(Project.test_projectors_that_share_some_checkpoints_never_wait_in_a_circle)
class SaysYesToWhoeverWaited(MemoryTransactions):
    async def project(self, views, jobs, quarantined, moves, free_slots=None):
        await super().project(views, jobs, quarantined, moves, free_slots)
        return True


class _Spoiled(MemoryReadModel):
    async def share(self, role, count, owner, lease_seconds):
        ours = await super().share(role, count, owner, lease_seconds)
        return self._spoil(ours)

    def _spoil(self, ours):
        raise AssertionError("a fault says what goes wrong")


@breaks(Parts.test_a_single_owner_has_all_parts_of_a_role)
class TakesHalf(_Spoiled):
    def _spoil(self, ours):
        return {part for part in ours if part % 2}


@breaks(
    Parts.test_a_new_owner_gets_its_part_from_those_with_more,
    Parts.test_with_more_owners_than_parts_some_have_none,
)
class KeepsWhatItHas(MemoryReadModel):
    """Only what is free can be had."""

    async def share(self, role, count, owner, lease_seconds):
        names = [f"{role}/{n}" for n in range(count)]
        return {n for n, name in enumerate(names) if await self.claim(name, owner, lease_seconds)}


@breaks(
    Parts.test_a_new_owner_gets_its_part_from_those_with_more,
    Parts.test_concurrent_owners_never_get_the_same_part,
    Parts.test_with_more_owners_than_parts_some_have_none,
)
class GivesEverybodyEverything(MemoryReadModel):
    async def share(self, role, count, owner, lease_seconds):
        return set(range(count))


@breaks(Parts.test_parts_of_an_expired_lease_go_to_the_other_owners)
class LeasesForEver(MemoryReadModel):
    async def share(self, role, count, owner, lease_seconds):
        return await super().share(role, count, owner, lease_seconds * 50)


@breaks(Parts.test_parts_can_be_given_up_by_a_lease_of_no_length)
class NeverGivesUp(MemoryReadModel):
    async def share(self, role, count, owner, lease_seconds):
        return await super().share(role, count, owner, lease_seconds or 10)


@breaks(Parts.test_no_owner_has_a_part_while_another_holds_the_whole_role)
class LooksAtThePartsOnly(MemoryReadModel):
    async def share(self, role, count, owner, lease_seconds):
        self._roles.pop(role, None)
        return await super().share(role, count, owner, lease_seconds)


@breaks(Parts.test_parts_are_listed_as_roles)
class HidesTheParts(MemoryReadModel):
    async def roles(self):
        return [one for one in await super().roles() if "/" not in one.name]


@breaks(Shadow.test_several_checkpoints_go_back_together_each_with_a_mark_of_its_own)
class TurnsTheFirstBack(MemoryReadModel):
    def take_over(self, shadow, names, position, quarantined):
        return super().take_over(shadow, names[:1], position, quarantined)


@breaks(
    Live.test_a_reported_process_is_listed_until_its_lease_ends,
    Live.test_a_report_with_a_lease_of_no_length_removes_the_process,
    Live.test_a_report_from_before_the_clock_was_set_back_is_not_listed,
    Live.test_processes_report_concurrently,
)
class ListsDeadProcesses(MemoryReadModel):
    async def processes(self):
        return [process for process, _ in self._processes.values()]


@breaks(
    Live.test_a_process_renews_its_report,
    Live.test_a_later_report_replaces_the_roles,
)
class KeepsTheFirstReport(MemoryReadModel):
    async def report(self, process, lease_seconds):
        if process.id not in self._processes:
            await super().report(process, lease_seconds)


@breaks(Live.test_processes_are_listed_oldest_first)
class ListsInTheOrderOfReports(MemoryReadModel):
    async def processes(self):
        return [process for process, _ in self._processes.values()]
