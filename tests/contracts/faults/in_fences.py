"""Fences with one thing wrong."""

from gesta.ports.fences import Fence
from gesta.stores.memory.fences import MemoryFences
from gesta.testing.contracts.fences import EventFencesContract as OfEvents
from gesta.testing.contracts.fences import ExternalFencesContract as OfExternal
from gesta.testing.contracts.fences import FencesAfterRestartContract as AfterRestart
from gesta.testing.contracts.fences import FencesContract as Fences
from gesta.testing.contracts.fences import QueueFencesAfterRestartContract
from gesta.testing.contracts.fences import QueueFencesContract as OfQueue
from gesta.testing.harnesses.memory import Harness
from tests.contracts.faults.planting import breaks


@breaks(
    Fences.test_a_store_that_was_left_refuses_every_write,
    Fences.test_the_error_says_where_to_go,
    Fences.test_a_store_that_is_being_filled_takes_everything_but_jobs,
    Fences.test_a_tenant_that_left_is_refused_and_the_others_are_not,
    Fences.test_nothing_of_a_refused_call_is_written,
    Fences.test_one_tenant_comes_back_and_another_stays_away,
    Fences.test_the_last_of_two_fences_of_a_kind_counts,
    AfterRestart.test_a_fence_is_kept_over_a_restart,
    OfQueue.test_a_queue_that_was_left_refuses_every_write,
    OfQueue.test_a_queue_that_is_being_filled_neither_takes_nor_gives_jobs,
    OfQueue.test_every_fence_of_a_queue_is_listed_once,
    OfQueue.test_the_error_of_a_queue_says_where_to_go,
    OfQueue.test_one_of_two_fences_of_a_queue_stays,
    OfExternal.test_external_workers_of_a_queue_that_was_left_are_refused,
    OfExternal.test_held_jobs_of_a_queue_that_was_left_stay_held,
    OfEvents.test_events_that_were_left_can_only_be_read,
    OfEvents.test_no_event_of_a_call_is_appended_if_one_tenant_has_left,
    QueueFencesAfterRestartContract.test_a_fence_of_a_queue_is_kept_over_a_restart,
)
class StopsNobody(MemoryFences):
    async def put_up(self, fence):
        pass


@breaks(Fences.test_a_store_that_was_left_refuses_every_write)
class LetsJobsThrough(MemoryFences):
    def check_jobs(self):
        pass


@breaks(Fences.test_a_store_that_was_left_can_be_read)
class StopsReadersToo(Harness):
    async def open(self):
        await super().open()
        views, fences = self.database.read_model, self.database.fences
        get = views.get

        async def checked(keys):
            assert await fences.standing() == []
            return await get(keys)

        setattr(views, "get", checked)  # noqa: B010 -- one object, not its class


@breaks(
    Fences.test_a_fence_that_was_taken_down_stops_nothing,
    Fences.test_a_tenant_that_left_is_refused_and_the_others_are_not,
    Fences.test_one_tenant_comes_back_and_another_stays_away,
    OfQueue.test_a_queue_whose_fences_were_taken_down_works_again,
    OfQueue.test_one_of_two_fences_of_a_queue_stays,
    OfEvents.test_a_fence_for_jobs_or_one_that_is_down_stops_no_events,
)
class NeverOpensAgain(MemoryFences):
    async def take_down(self, fence, jobs=()):
        pass


@breaks(
    Fences.test_jobs_are_put_as_the_fence_goes_down,
    OfQueue.test_jobs_are_put_as_the_fence_of_a_queue_goes_down,
)
class LosesTheJobs(MemoryFences):
    async def take_down(self, fence, jobs=()):
        await super().take_down(fence)


@breaks(Fences.test_one_tenant_comes_back_and_another_stays_away)
class BringsEverybodyBack(MemoryFences):
    async def take_down(self, fence, jobs=()):
        self._standing.clear()


@breaks(
    Fences.test_a_tenant_that_left_is_refused_and_the_others_are_not,
    OfQueue.test_a_fence_of_one_tenant_stops_no_queue,
)
class FencesAllForOne(MemoryFences):
    async def put_up(self, fence):
        await super().put_up(Fence(fence.kind, fence.other))


@breaks(Fences.test_nothing_of_a_refused_call_is_written)
class ChecksWhileItWrites(Harness):
    """One append after the other, the fence asked before each."""

    async def open(self):
        await super().open()
        events = self.database.events
        append = events.append

        async def one_by_one(appends):
            return [verdict for one in appends for verdict in await append([one])]

        setattr(events, "append", one_by_one)  # noqa: B010 -- one object, not its class


@breaks(AfterRestart.test_a_fence_is_kept_over_a_restart)
class ForgetsWithARestart(Harness):
    async def close(self):
        self.database.fences._standing.clear()
        await super().close()
