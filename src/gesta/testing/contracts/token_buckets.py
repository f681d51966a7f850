"""The promises of a store of token buckets: never more tokens than the rate, over all callers."""

from gesta.domain.token_bucket import Rate
from gesta.ports.token_buckets import Name, Wanted
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.samples import fresh_name
from gesta.testing.contracts.suite import Contract

#: Ten a second, three at once.
RATE = Rate(100.0, 3)
AHEAD_MS = 250


class TokenBucketsContract(Contract):
    needs = frozenset({"token_buckets"})

    async def test_a_new_bucket_is_full(self, harness: Harness) -> None:
        now = harness.runtime.now_ms()
        assert await times(harness, fresh_bucket(), 3) == [now, now, now]

    async def test_more_come_one_by_one_and_none_later_than_asked_for(
        self, harness: Harness
    ) -> None:
        name, now = fresh_bucket(), harness.runtime.now_ms()
        (answer,) = await harness.token_buckets.reserve([Wanted(name, RATE, 50)], AHEAD_MS)
        assert answer.times == [now, now, now, now + 100, now + 200]
        assert answer.next_at == now + 300

    async def test_what_was_reserved_is_not_given_again(self, harness: Harness) -> None:
        name, now = fresh_bucket(), harness.runtime.now_ms()
        await times(harness, name, 3)
        assert await times(harness, name, 1) == [now + 100]
        assert await times(harness, name, 1) == [now + 200]
        assert await times(harness, name, 1) == []

    async def test_it_fills_while_time_passes_and_never_beyond_its_burst(
        self, harness: Harness
    ) -> None:
        name = fresh_bucket()
        await times(harness, name, 5)
        harness.runtime.advance(0.3)
        now = harness.runtime.now_ms()
        assert await times(harness, name, 1) == [now]
        harness.runtime.advance(3_600)
        now = harness.runtime.now_ms()
        assert await times(harness, name, 9) == [now, now, now, now + 100, now + 200]

    async def test_nothing_is_taken_by_asking_in_vain(self, harness: Harness) -> None:
        name, now = fresh_bucket(), harness.runtime.now_ms()
        await times(harness, name, 5)
        for _ in range(5):
            assert await times(harness, name, 1) == []
        (answer,) = await harness.token_buckets.reserve([Wanted(name, RATE, 1)], AHEAD_MS)
        assert answer.next_at == now + 300

    async def test_buckets_and_tenants_are_separate(self, harness: Harness) -> None:
        (tenant, name), now = fresh_bucket(), harness.runtime.now_ms()
        await times(harness, (tenant, name), 9)
        for other in ((tenant, f"{name}.b"), (f"{tenant}.b", name)):
            assert (await times(harness, other, 1)) == [now]

    async def test_one_call_asks_for_many_and_answers_in_order(self, harness: Harness) -> None:
        first, second, now = fresh_bucket(), fresh_bucket(), harness.runtime.now_ms()
        wanted = [
            Wanted(second, Rate(50.0, 1), 2),
            Wanted(first, RATE, 4),
            Wanted(second, Rate(50.0, 1), 1),
        ]
        answers = await harness.token_buckets.reserve(wanted, AHEAD_MS)
        assert [answer.times for answer in answers] == [
            [now, now + 50],
            [now, now, now, now + 100],
            [now + 100],
        ]
        assert await harness.token_buckets.reserve([], AHEAD_MS) == []

    async def test_concurrent_callers_share_the_rate(self, harness: Harness) -> None:
        name, now = fresh_bucket(), harness.runtime.now_ms()
        given = await race(*(times(harness, name, 2) for _ in range(8)))
        assert sorted(at for one in given for at in one) == [now, now, now, now + 100, now + 200]

    async def test_a_closed_bucket_gives_nothing_before_it_opens(self, harness: Harness) -> None:
        name, now = fresh_bucket(), harness.runtime.now_ms()
        await harness.token_buckets.close([(name, 30_000)])
        (answer,) = await harness.token_buckets.reserve([Wanted(name, RATE, 1)], AHEAD_MS)
        assert (answer.times, answer.next_at) == ([], now + 30_000)
        harness.runtime.advance(30)
        assert await times(harness, name, 1) == [now + 30_000]

    async def test_closing_for_shorter_does_not_open(self, harness: Harness) -> None:
        name = fresh_bucket()
        await harness.token_buckets.close([(name, 30_000)])
        await harness.token_buckets.close([(name, 1_000), (fresh_bucket(), 1_000)])
        harness.runtime.advance(10)
        assert await times(harness, name, 1) == []

    async def test_closing_gives_back_nothing(self, harness: Harness) -> None:
        name = fresh_bucket()
        await times(harness, name, 5)
        await harness.token_buckets.close([(name, 0)])
        assert await times(harness, name, 1) == []

    async def test_a_rate_may_change(self, harness: Harness) -> None:
        name = fresh_bucket()
        await times(harness, name, 5)
        harness.runtime.advance(60)
        now = harness.runtime.now_ms()
        (answer,) = await harness.token_buckets.reserve([Wanted(name, Rate(0.5, 1), 3)], AHEAD_MS)
        assert answer.times == [now, now + 0.5, now + 1]

    async def test_no_caller_waits_longer_than_the_rate_requires(self, harness: Harness) -> None:
        """As where it was used while a clock was ahead by hours."""
        name, now = fresh_bucket(), harness.runtime.now_ms()
        await harness.token_buckets.reserve([Wanted(name, Rate(10_000_000.0, 1), 1)], AHEAD_MS)
        (answer,) = await harness.token_buckets.reserve([Wanted(name, RATE, 1)], AHEAD_MS)
        assert (answer.times, answer.next_at) == ([], now + 350)

    async def test_what_says_nothing_is_forgotten_and_nothing_else(self, harness: Harness) -> None:
        while await harness.token_buckets.forget(1_000):
            pass
        idle, used, closed = fresh_bucket(), fresh_bucket(), fresh_bucket()
        await times(harness, idle, 1)
        harness.runtime.advance(10)
        await times(harness, used, 5)
        await harness.token_buckets.close([(closed, 30_000)])
        assert await harness.token_buckets.forget(1_000) == 1
        assert (await times(harness, used, 1), await times(harness, closed, 1)) == ([], [])
        assert len(await times(harness, idle, 3)) == 3

    async def test_it_is_forgotten_in_portions(self, harness: Harness) -> None:
        while await harness.token_buckets.forget(1_000):
            pass
        for _ in range(3):
            await times(harness, fresh_bucket(), 1)
        harness.runtime.advance(10)
        assert [await harness.token_buckets.forget(2) for _ in range(3)] == [2, 1, 0]


def fresh_bucket() -> Name:
    return fresh_name("tenant"), fresh_name("limit")


async def times(harness: Harness, name: Name, tokens: int) -> list[float]:
    (answer,) = await harness.token_buckets.reserve([Wanted(name, RATE, tokens)], AHEAD_MS)
    return answer.times
