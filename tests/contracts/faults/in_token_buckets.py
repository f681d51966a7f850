"""Token buckets with one thing wrong."""

from msgspec.structs import replace

from gesta.domain.token_bucket import Bucket, Rate
from gesta.ports.token_buckets import Reserved, Wanted
from gesta.runtime.clock import turn
from gesta.stores.memory.token_buckets import MemoryTokenBuckets
from gesta.testing.contracts.token_buckets import TokenBucketsContract as TokenBuckets
from tests.contracts.faults.planting import breaks


@breaks(TokenBuckets.test_a_new_bucket_is_full)
class BeginsEmpty(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        for one in wanted:
            self._buckets.setdefault(one.name, Bucket(self._runtime.now_ms() + 10_000.0))
        return await super().reserve(wanted, ahead_ms)


@breaks(TokenBuckets.test_more_come_one_by_one_and_none_later_than_asked_for)
class LooksAheadForEver(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        return await super().reserve(wanted, 10**9)


@breaks(
    TokenBuckets.test_what_was_reserved_is_not_given_again,
    TokenBuckets.test_nothing_is_taken_by_asking_in_vain,
)
class KeepsNoRecord(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        answers = await super().reserve(wanted, ahead_ms)
        self._buckets.clear()
        return answers


@breaks(TokenBuckets.test_it_fills_while_time_passes_and_never_beyond_its_burst)
class SavesUpForEver(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        raised = [
            Wanted(one.name, Rate(one.rate.gap_ms, one.rate.burst * 2), one.tokens)
            for one in wanted
        ]
        known = all(one.name in self._buckets for one in wanted)
        return await super().reserve(
            raised if known and self._runtime.now_ms() % 1_000 == 300 else wanted, ahead_ms
        )


@breaks(TokenBuckets.test_no_caller_waits_longer_than_the_rate_requires)
class BelievesAnyTime(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        answers = await super().reserve(wanted, ahead_ms)
        return [
            replace(one, next_at=max(one.next_at, self._runtime.now_ms() + 10_000.0))
            if not one.times
            else one
            for one in answers
        ]


@breaks(TokenBuckets.test_buckets_and_tenants_are_separate)
class IgnoresTheTenant(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        return await super().reserve(
            [replace(one, name=("", one.name[1])) for one in wanted], ahead_ms
        )


@breaks(TokenBuckets.test_one_call_asks_for_many_and_answers_in_order)
class AnswersInTheOrderOfNames(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        return await super().reserve(sorted(wanted, key=lambda one: one.name), ahead_ms)


@breaks(TokenBuckets.test_concurrent_callers_share_the_rate)
class ReadsAndWritesInTwoSteps(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        before = dict(self._buckets)
        await turn()
        self._buckets = before
        return await super().reserve(wanted, ahead_ms)


@breaks(
    TokenBuckets.test_a_closed_bucket_gives_nothing_before_it_opens,
    TokenBuckets.test_closing_for_shorter_does_not_open,
    TokenBuckets.test_what_says_nothing_is_forgotten_and_nothing_else,
)
class StaysOpen(MemoryTokenBuckets):
    async def close(self, closed):
        pass


@breaks(TokenBuckets.test_closing_gives_back_nothing)
class FillsWhatItCloses(MemoryTokenBuckets):
    async def close(self, closed):
        for name, _ in closed:
            self._buckets.pop(name, None)
        await super().close(closed)


@breaks(TokenBuckets.test_a_rate_may_change)
class RemembersTheFirstRate(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        rates = self.__dict__.setdefault("rates", {})
        kept = [replace(one, rate=rates.setdefault(one.name, one.rate)) for one in wanted]
        return await super().reserve(kept, ahead_ms)


@breaks(TokenBuckets.test_it_is_forgotten_in_portions)
class ForgetsEverythingAtOnce(MemoryTokenBuckets):
    async def forget(self, limit):
        return await super().forget(10**9)


@breaks(TokenBuckets.test_nothing_is_taken_by_asking_in_vain)
class TakesWhatItDoesNotGive(MemoryTokenBuckets):
    async def reserve(self, wanted, ahead_ms):
        answers = await super().reserve(wanted, ahead_ms)
        for one, answer in zip(wanted, answers, strict=True):
            if not answer.times:
                bucket = self._buckets[one.name]
                self._buckets[one.name] = replace(bucket, full_at=bucket.full_at + one.rate.gap_ms)
        return [Reserved(answer.times, answer.next_at) for answer in answers]
