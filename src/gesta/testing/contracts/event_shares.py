"""What every event store promises to those who follow some partitions of the log: each stream is in
one of them, for ever and in every store.
"""

from hashlib import sha256
from itertools import count

from gesta.ports.event_store import FOLLOW_BYTES, Recorded, Share
from gesta.testing.contracts.concurrency import let_others_run, race
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import (
    end_of_log,
    follow_from,
    fresh_append,
    fresh_stream,
    sized_append,
)
from gesta.testing.contracts.suite import Contract

#: Names of any kind: the hash is one of bytes, and in UTF-8.
NAMES = ("", "é", "名前", "a" * 300)


class EventSharesContract(Contract):
    needs = frozenset({"events", "durable"})

    async def test_each_event_is_in_the_partition_of_its_stream(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        streams = [f"{fresh_stream()}{NAMES[n % len(NAMES)]}" for n in range(60)]
        await harness.events.append([fresh_append(stream, count=2) for stream in streams])
        for number in range(16):
            found, reached = await harness.events.follow_share(start, 1_000, Share(16, (number,)))
            assert {event.stream for event in found} == {
                one for one in streams if sha256(one.encode()).digest()[0] % 16 == number
            }
            assert reached == await harness.events.end()

    async def test_it_stays_there_after_a_restart(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append(
            [fresh_append(f"{fresh_stream()}{NAMES[n % len(NAMES)]}") for n in range(60)]
        )
        shares = [Share(16, (number, number + 8)) for number in range(8)]
        before = [await harness.events.follow_share(start, 1_000, share) for share in shares]
        await reopen(harness)
        assert [
            await harness.events.follow_share(start, 1_000, share) for share in shares
        ] == before

    async def test_events_of_a_share_are_whole_and_in_the_order_of_the_log(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append([fresh_append() for _ in range(40)])
        await reopen(harness)
        everything = await follow_from(harness.events, start)
        share = Share(4, (0, 3))
        found, _ = await harness.events.follow_share(start, 1_000, share)
        assert found == [event for event in everything if share.has(event.stream)]

    async def test_small_steps_go_over_what_is_not_ours_and_miss_nothing(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append([fresh_append() for _ in range(40)])
        await reopen(harness)
        share, after, seen = Share(16, (5,)), start, list[Recorded]()
        for _ in range(20):
            found, reached = await harness.events.follow_share(after, 2, share)
            assert reached > after
            assert all(after < event.position <= reached for event in found)
            seen, after = seen + found, reached
        assert after == await harness.events.end()
        assert seen == (await harness.events.follow_share(start, 1_000, share))[0]

    async def test_at_the_end_a_share_is_empty_and_the_position_stays(
        self, harness: Harness
    ) -> None:
        await harness.events.append([fresh_append()])
        end = await end_of_log(harness.events)
        assert await harness.events.follow_share(end, 10, Share(2, (0,))) == ([], end)
        assert await harness.events.follow_share(end, 10, Share(2, (1,))) == ([], end)

    async def test_a_follower_of_a_share_skips_nothing_while_others_append(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        appends = [fresh_append() for _ in range(30)]
        share, seen, after = Share(2, (1,)), list[Recorded](), start

        async def follow(turns: int) -> None:
            nonlocal after
            for _ in range(turns):
                found, after = await harness.events.follow_share(after, 7, share)
                seen.extend(found)
                await let_others_run(turns=1)

        await race(follow(40), *(harness.events.append([one]) for one in appends))
        await follow(10)
        assert [event.stream for event in seen] == [
            event.stream
            for event in await follow_from(harness.events, start)
            if share.has(event.stream)
        ]


class LargeEventSharesContract(Contract):
    needs = frozenset({"events", "large_events"})

    async def test_a_look_ends_with_the_event_that_makes_it_full_and_says_so(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        share = Share(2, (1,))
        names = (fresh_stream() for _ in count())
        ours = [next(name for name in names if share.has(name)) for _ in range(3)]
        theirs = next(name for name in names if not share.has(name))
        await harness.events.append(
            [
                sized_append(1, stream=theirs),
                *(sized_append(FOLLOW_BYTES - 1, 1, stream=one) for one in ours),
            ]
        )
        await reopen(harness)
        after, seen = start, list[tuple[str, int]]()
        while after < await harness.events.end():
            found, reached = await harness.events.follow_share(after, 1_000, share)
            assert reached > after
            assert sum(len(event.data) for event in found[:-1]) < FOLLOW_BYTES
            seen, after = seen + [(event.stream, event.version) for event in found], reached
        assert seen == [(one, version) for one in ours for version in (1, 2)]
