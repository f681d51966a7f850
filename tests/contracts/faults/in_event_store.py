"""Event stores with one thing wrong."""

from msgspec.structs import replace

from gesta.ports.event_store import FOLLOW_BYTES, Appended, Claimed, LeadsElsewhere, Stale
from gesta.runtime.clock import Signal
from gesta.stores.memory.event_store import MemoryEventStore
from gesta.testing.contracts.event_store import EventStoreContract as Events
from gesta.testing.contracts.event_store import (
    LargeEventsAfterRestartContract,
    LargeEventsContract,
)
from gesta.testing.contracts.key_claims import EventClaimsContract as Claims
from gesta.testing.contracts.key_claims import (
    FirstClaimsContract,
    KeyClaimsAfterRestartContract,
    KeyClaimsContract,
)
from gesta.testing.contracts.transactions import RecordContract as Record
from tests.contracts.faults.planting import breaks


@breaks(Events.test_how_far_a_position_is_behind_is_at_least_the_number_of_events_after_it)
class IsAlwaysUpToDate(MemoryEventStore):
    async def behind(self, after):
        return 0


@breaks(
    Events.test_the_first_event_of_a_stream_has_version_1,
    Events.test_versions_count_the_events_of_a_stream,
)
class NumbersVersionsFromZero(MemoryEventStore):
    async def read(self, streams):
        return [replace(event, version=event.version - 1) for event in await super().read(streams)]


@breaks(
    Events.test_an_event_is_read_as_it_was_appended,
    Events.test_the_log_and_the_stream_have_the_same_events,
)
class LosesTheMetadata(MemoryEventStore):
    async def read(self, streams):
        return [replace(event, meta=b"{}") for event in await super().read(streams)]


@breaks(
    Events.test_an_append_that_read_a_stale_version_is_refused,
    Events.test_an_append_that_expects_more_events_than_there_are_is_refused,
    Events.test_of_concurrent_appends_for_a_version_one_is_accepted,
    Events.test_a_refused_append_leaves_no_trace_in_the_log,
)
class IgnoresTheExpectedVersion(MemoryEventStore):
    def append_one(self, append):
        self._write(append)
        return Appended(append.expected + len(append.events))


@breaks(
    Events.test_of_two_appends_for_one_version_in_a_batch_the_first_is_accepted,
    Events.test_an_append_may_build_on_an_earlier_one_of_its_batch,
    Claims.test_of_two_claims_to_a_key_in_one_batch_the_first_is_accepted,
)
class ChecksABatchBeforeItWritesAny(MemoryEventStore):
    async def append(self, appends):
        refusals = [self._refusal(append) for append in appends]
        for append, refusal in zip(appends, refusals, strict=True):
            if refusal is None:
                self._write(append)
        return [
            refusal or Appended(append.expected + len(append.events))
            for append, refusal in zip(appends, refusals, strict=True)
        ]


@breaks(Events.test_a_refused_append_does_not_touch_the_others_of_its_batch)
class RefusesTheWholeBatch(MemoryEventStore):
    async def append(self, appends):
        refusals = [refusal for append in appends if (refusal := self._refusal(append))]
        return refusals[:1] * len(appends) if refusals else await super().append(appends)


@breaks(
    Events.test_an_append_repeated_after_a_lost_answer_is_recognised,
    Events.test_a_repeated_append_is_recognised_when_the_stream_has_moved_on,
    Events.test_an_append_given_twice_in_a_batch_is_written_once,
    Record.test_a_recording_repeated_after_a_lost_answer_still_settles_the_job,
)
class RecognisesNoRepetition(MemoryEventStore):
    def _is_repeated(self, append):
        return False


@breaks(Events.test_an_append_of_which_only_a_part_was_written_is_no_repetition)
class ComparesTheFirstEventOnly(MemoryEventStore):
    def _is_repeated(self, append):
        there = self._streams.get(append.stream, [])[append.expected :]
        return bool(there) and there[0].id == append.events[0].id


@breaks(Events.test_a_batch_may_be_large, Claims.test_a_batch_of_claims_may_be_large)
class CutsLargeBatches(MemoryEventStore):
    async def append(self, appends):
        return await super().append(appends[:128])


@breaks(Events.test_an_empty_call_is_answered_with_nothing)
class AnswersNobody(MemoryEventStore):
    async def append(self, appends):
        return await super().append(appends) or [Stale(0)]


@breaks(Events.test_each_stream_is_read_after_the_version_given_for_it)
class ReadsEveryStreamFromItsStart(MemoryEventStore):
    async def read(self, streams):
        return await super().read([(stream, 0) for stream, _ in streams])


@breaks(
    Events.test_the_log_has_every_event_once_in_the_order_of_rising_positions,
    Events.test_the_log_keeps_the_order_of_each_stream,
)
class FollowsBackwards(MemoryEventStore):
    async def follow(self, after, limit):
        return (await super().follow(after, limit))[::-1]


@breaks(Events.test_pages_of_any_size_make_up_the_same_log)
class IgnoresTheLimit(MemoryEventStore):
    async def follow(self, after, limit):
        return self._log[after:]


@breaks(
    LargeEventsContract.test_a_page_ends_with_the_event_that_makes_it_full,
    LargeEventsAfterRestartContract.test_pages_are_as_full_as_before,
)
class CountsEventsOnly(MemoryEventStore):
    async def follow(self, after, limit):
        return [event for event in self._log[after:] if event][:limit]


@breaks(LargeEventsContract.test_an_event_larger_than_a_page_makes_one_by_itself)
class StopsBeforeWhatDoesNotFit(MemoryEventStore):
    async def follow(self, after, limit):
        page = await super().follow(after, limit)
        return page if sum(len(event.data) for event in page) <= FOLLOW_BYTES else page[:-1]


@breaks(Events.test_nothing_follows_the_last_event)
class RepeatsTheLastEvent(MemoryEventStore):
    async def follow(self, after, limit):
        return await super().follow(max(after - 1, 0), limit)


@breaks(Events.test_a_follower_that_reads_while_others_append_skips_nothing)
class ShowsSomeEventsLate(MemoryEventStore):
    """As a database does that numbers events when they are written and shows them when they are
    committed.
    """

    asked = 0

    async def follow(self, after, limit):
        self.asked += 1
        return [
            event
            for event in self._log[after:]
            if event and (event.position % 3 or self.asked > 30)
        ][:limit]


@breaks(Events.test_the_end_is_the_position_of_the_newest_event)
class EndsBeforeTheLast(MemoryEventStore):
    async def end(self):
        return max(0, len(self._log) - 1)


@breaks(Events.test_every_waiter_is_woken_by_an_append)
class WakesTheFirstWaiterOnly(MemoryEventStore):
    async def changed(self, timeout_seconds):
        signal = Signal(self._appended._runtime) if self._appended._waiters else self._appended
        await signal.wait(timeout_seconds)


@breaks(
    Events.test_an_append_before_the_wait_ends_the_wait,
    Record.test_recorded_events_wake_the_follower,
)
class WakesNobody(MemoryEventStore):
    async def changed(self, timeout_seconds):
        await Signal(self._appended._runtime).wait(timeout_seconds)


@breaks(Events.test_a_wait_ends_when_its_time_is_up)
class WaitsForEver(MemoryEventStore):
    async def changed(self, timeout_seconds):
        await self._appended.wait(1_000_000)


@breaks(
    Claims.test_a_key_leads_to_the_request_that_claimed_it_first,
    Claims.test_of_concurrent_claims_to_a_key_one_is_accepted,
)
class ForgetsClaims(MemoryEventStore):
    def _write(self, append):
        super()._write(replace(append, claim=None))


@breaks(Claims.test_an_append_repeated_with_its_own_claim_is_recognised)
class RefusesItsOwnClaim(MemoryEventStore):
    def append_one(self, append):
        holder = self._claims.get(append.claim.name)
        return Claimed(holder.request_id, holder.content) if holder else super().append_one(append)


@breaks(Claims.test_a_refused_append_claims_nothing)
class ClaimsBeforeItChecks(MemoryEventStore):
    def append_one(self, append):
        verdict = super().append_one(append)
        self._claims.setdefault(append.claim.name, append.claim)
        return verdict


@breaks(
    FirstClaimsContract.test_events_follow_a_first_claim_that_holds_and_no_other,
    FirstClaimsContract.test_of_two_first_claims_to_a_key_in_one_batch_the_first_is_accepted,
    FirstClaimsContract.test_of_concurrent_first_claims_to_a_key_one_is_accepted,
)
class AppendsWhateverTheFirstClaim(MemoryEventStore):
    def append_one(self, append):
        return super().append_one(replace(append, first=None))


@breaks(FirstClaimsContract.test_a_refused_append_keeps_its_first_claim)
class FirstClaimsOnlyOfWhatIsAppended(MemoryEventStore):
    def append_one(self, append):
        verdict = super().append_one(append)
        if not isinstance(verdict, Appended) and append.first is not None:
            del self._claims[append.first.name]
        return verdict


@breaks(FirstClaimsContract.test_an_append_repeated_with_its_own_first_claim_is_recognised)
class RefusesItsOwnFirstClaim(MemoryEventStore):
    def append_one(self, append):
        if append.first is not None and append.first.name in self._claims:
            return LeadsElsewhere()
        return super().append_one(append)


@breaks(KeyClaimsContract.test_claims_are_listed_by_name_page_by_page)
class ListsClaimsAsTheyCame(MemoryEventStore):
    async def claims(self, after, limit):
        return [claim for name, claim in self._claims.items() if name > after][:limit]


@breaks(
    KeyClaimsContract.test_a_claim_that_was_put_keeps_others_from_its_key,
    KeyClaimsAfterRestartContract.test_a_claim_that_was_put_stays_claimed,
)
class PutsClaimsInWordOnly(MemoryEventStore):
    async def put_claims(self, claims):
        return [True] * len(claims)


@breaks(KeyClaimsContract.test_a_repeated_claim_is_accepted_and_a_foreign_one_reported)
class LetsTheLastClaimCount(MemoryEventStore):
    async def put_claims(self, claims):
        self._claims |= {claim.name: claim for claim in claims}
        return [True] * len(claims)


@breaks(Events.test_a_stream_is_read_back_from_its_end_or_from_before_a_version)
class ReadsBackFromTheBeginning(MemoryEventStore):
    async def read_back(self, stream, before, limit):
        return (await super().read_back(stream, before, 100))[::-1][:limit]


@breaks(Events.test_a_stream_is_read_back_from_its_end_or_from_before_a_version)
class ReadsBackWithTheVersionItself(MemoryEventStore):
    async def read_back(self, stream, before, limit):
        return await super().read_back(stream, None if before is None else before + 1, limit)
