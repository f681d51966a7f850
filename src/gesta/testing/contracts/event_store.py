"""The promises of an event store about appending, reading and following.

key_claims.py has those about keys.
"""

from gesta.ports.event_store import FOLLOW_BYTES, Append, Appended, Recorded, Stale
from gesta.testing.contracts.concurrency import end_within, let_others_run, race, wait_for_all
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import (
    appended,
    end_of_log,
    follow_from,
    fresh_append,
    fresh_events,
    fresh_stream,
    sized_append,
)
from gesta.testing.contracts.suite import Contract


class EventStoreContract(Contract):
    needs = frozenset({"events"})

    async def test_the_first_event_of_a_stream_has_version_1(self, harness: Harness) -> None:
        append = fresh_append()
        assert await harness.events.append([append]) == [Appended(1)]
        assert [event.version for event in await harness.events.read([(append.stream, 0)])] == [1]

    async def test_versions_count_the_events_of_a_stream(self, harness: Harness) -> None:
        stream = fresh_stream()
        assert await harness.events.append([fresh_append(stream, count=2)]) == [Appended(2)]
        assert await harness.events.append([fresh_append(stream, expected=2)]) == [Appended(3)]
        assert [event.version for event in await harness.events.read([(stream, 0)])] == [1, 2, 3]

    async def test_an_event_is_read_as_it_was_appended(self, harness: Harness) -> None:
        append = await appended(harness, f"{fresh_stream()}-ärger-{'x' * 200}", count=2)
        found = await harness.events.read([(append.stream, 0)])
        assert [
            (event.stream, event.id, event.type, event.data, event.meta) for event in found
        ] == [
            (append.stream, event.id, event.type, event.data, event.meta) for event in append.events
        ]

    async def test_an_append_that_read_a_stale_version_is_refused(self, harness: Harness) -> None:
        first = fresh_append()
        await harness.events.append([first])
        assert await harness.events.append([fresh_append(first.stream, count=2)]) == [
            Stale(1)
        ]  # R1-35
        assert await _ids_of(harness, first.stream) == [event.id for event in first.events]

    async def test_an_append_that_expects_more_events_than_there_are_is_refused(
        self, harness: Harness
    ) -> None:
        append = fresh_append(expected=3)
        assert await harness.events.append([append]) == [Stale(0)]
        assert await _ids_of(harness, append.stream) == []

    async def test_of_concurrent_appends_for_a_version_one_is_accepted(
        self, harness: Harness
    ) -> None:
        stream = fresh_stream()
        appends = [fresh_append(stream) for _ in range(8)]
        answers = await race(*(harness.events.append([append]) for append in appends))
        verdicts = [verdict for (verdict,) in answers]
        assert sorted(map(repr, verdicts)) == [
            repr(Appended(1)),
            *[repr(Stale(1))] * 7,
        ]  # R1-35, R1-49
        winner = appends[verdicts.index(Appended(1))]
        assert await _ids_of(harness, stream) == [event.id for event in winner.events]

    async def test_of_two_appends_for_one_version_in_a_batch_the_first_is_accepted(
        self, harness: Harness
    ) -> None:
        stream = fresh_stream()
        first, second = fresh_append(stream), fresh_append(stream)
        assert await harness.events.append([first, second]) == [Appended(1), Stale(1)]
        assert await _ids_of(harness, stream) == [first.events[0].id]

    async def test_an_append_may_build_on_an_earlier_one_of_its_batch(
        self, harness: Harness
    ) -> None:
        stream = fresh_stream()
        first, second = fresh_append(stream), fresh_append(stream, expected=1, count=2)
        assert await harness.events.append([first, second]) == [Appended(1), Appended(3)]
        assert await _ids_of(harness, stream) == [
            event.id for event in first.events + second.events
        ]

    async def test_a_refused_append_does_not_touch_the_others_of_its_batch(
        self, harness: Harness
    ) -> None:
        before, refused, after = fresh_append(), fresh_append(expected=7), fresh_append()
        assert await harness.events.append([before, refused, after]) == [
            Appended(1),
            Stale(0),
            Appended(1),
        ]
        found = await harness.events.read(
            [(append.stream, 0) for append in (before, refused, after)]
        )
        assert sorted(event.stream for event in found) == sorted([before.stream, after.stream])

    async def test_an_append_repeated_after_a_lost_answer_is_recognised(
        self, harness: Harness
    ) -> None:
        append = await appended(harness, count=2)
        assert await harness.events.append([append]) == [Appended(2)]  # S1-16
        assert await _ids_of(harness, append.stream) == [event.id for event in append.events]

    async def test_a_repeated_append_is_recognised_when_the_stream_has_moved_on(
        self, harness: Harness
    ) -> None:
        append = fresh_append()
        await harness.events.append([append, fresh_append(append.stream, expected=1)])
        (verdict,) = await harness.events.append([append])
        assert isinstance(verdict, Appended)  # S1-16
        assert len(await _ids_of(harness, append.stream)) == 2

    async def test_an_append_given_twice_in_a_batch_is_written_once(self, harness: Harness) -> None:
        append = fresh_append(count=2)
        assert await harness.events.append([append, append]) == [Appended(2), Appended(2)]
        assert await _ids_of(harness, append.stream) == [event.id for event in append.events]

    async def test_an_append_of_which_only_a_part_was_written_is_no_repetition(
        self, harness: Harness
    ) -> None:
        append = await appended(harness, count=2)
        other_end = Append(append.stream, 0, (append.events[0], *fresh_events()))
        longer = Append(append.stream, 0, (*append.events, *fresh_events()))
        assert await harness.events.append([other_end, longer]) == [Stale(2), Stale(2)]
        assert await _ids_of(harness, append.stream) == [event.id for event in append.events]

    async def test_a_batch_may_be_large(self, harness: Harness) -> None:
        """Stores split batches into statements; a split could lose or repeat something."""
        opening = [fresh_append() for _ in range(300)]
        continuing = [fresh_append(append.stream, expected=1) for append in opening]
        assert await harness.events.append(opening) == [Appended(1)] * 300
        assert await harness.events.append(continuing) == [Appended(2)] * 300
        found = await harness.events.read([(append.stream, 0) for append in opening])
        assert sorted(event.id for event in found) == sorted(
            append.events[0].id for append in opening + continuing
        )

    async def test_an_empty_call_is_answered_with_nothing(self, harness: Harness) -> None:
        assert await harness.events.append([]) == []
        assert await harness.events.read([]) == []

    async def test_each_stream_is_read_after_the_version_given_for_it(
        self, harness: Harness
    ) -> None:
        first, second = fresh_append(count=3), fresh_append(count=2)
        await harness.events.append([first, second])
        found = await harness.events.read(
            [(first.stream, 1), (second.stream, 2), (fresh_stream(), 0)]
        )
        assert [(event.stream, event.version) for event in found] == [
            (first.stream, 2),
            (first.stream, 3),
        ]

    async def test_a_stream_is_read_back_from_its_end_or_from_before_a_version(
        self, harness: Harness
    ) -> None:
        append = fresh_append(count=5)
        await harness.events.append([append, fresh_append()])
        forth = await harness.events.read([(append.stream, 0)])
        assert await harness.events.read_back(append.stream, None, 2) == [forth[4], forth[3]]
        assert await harness.events.read_back(append.stream, 4, 2) == [forth[2], forth[1]]
        assert await harness.events.read_back(append.stream, 2, 100) == [forth[0]]
        assert await harness.events.read_back(append.stream, 1, 100) == []
        assert await harness.events.read_back(append.stream, 99, 1) == [forth[4]]
        assert await harness.events.read_back(fresh_stream(), None, 100) == []

    async def test_the_log_has_every_event_once_in_the_order_of_rising_positions(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        appends = [fresh_append(count=2) for _ in range(20)]
        await race(*(harness.events.append([append]) for append in appends))
        found = await follow_from(harness.events, start)
        own = [event for event in found if event.stream in {append.stream for append in appends}]
        positions = [event.position for event in found]
        assert positions == sorted(set(positions))
        assert sorted(event.id for event in own) == sorted(
            event.id for append in appends for event in append.events
        )

    async def test_the_log_keeps_the_order_of_each_stream(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        stream = fresh_stream()
        await harness.events.append(
            [fresh_append(stream, count=2), fresh_append(), fresh_append(stream, expected=2)]
        )
        found = await follow_from(harness.events, start)
        assert [event.version for event in found if event.stream == stream] == [1, 2, 3]

    async def test_the_log_and_the_stream_have_the_same_events(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        append = await appended(harness, count=2)
        followed = [
            event
            for event in await follow_from(harness.events, start)
            if event.stream == append.stream
        ]
        assert followed == await harness.events.read([(append.stream, 0)])

    async def test_pages_of_any_size_make_up_the_same_log(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append([fresh_append(count=3) for _ in range(3)])
        whole = await harness.events.follow(start, 100)
        assert len(await harness.events.follow(start, 4)) == 4
        assert (
            await follow_from(harness.events, start, page=1)
            == await follow_from(harness.events, start, page=4)
            == whole
        )

    async def test_nothing_follows_the_last_event(self, harness: Harness) -> None:
        await harness.events.append([fresh_append()])
        assert await harness.events.follow(await end_of_log(harness.events), 10) == []

    async def test_how_far_a_position_is_behind_is_at_least_the_number_of_events_after_it(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        assert await harness.events.behind(start) == 0
        await harness.events.append([fresh_append(count=2), fresh_append()])
        assert await harness.events.behind(start) >= 3

    async def test_a_refused_append_leaves_no_trace_in_the_log(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        refused = fresh_append(expected=7)
        await harness.events.append([refused])
        assert refused.stream not in {
            event.stream for event in await follow_from(harness.events, start)
        }

    async def test_a_follower_that_reads_while_others_append_skips_nothing(
        self, harness: Harness
    ) -> None:
        start = await end_of_log(harness.events)
        appends = [fresh_append() for _ in range(30)]
        seen: list[Recorded] = []

        async def follow() -> None:
            after = start
            for _ in range(40):
                page = await harness.events.follow(after, 7)
                seen.extend(page)
                after = page[-1].position if page else after
                await let_others_run(turns=1)

        async def append(one: Append, turns: int) -> None:
            await let_others_run(turns)
            await harness.events.append([one])

        await race(follow(), *(append(one, turns) for turns, one in enumerate(appends)))
        seen += await follow_from(harness.events, seen[-1].position if seen else start)
        assert seen == await follow_from(harness.events, start)
        assert {append.stream for append in appends} <= {event.stream for event in seen}

    async def test_the_end_is_the_position_of_the_newest_event(self, harness: Harness) -> None:
        start = await harness.events.end()
        assert start == await end_of_log(harness.events)
        await harness.events.append([fresh_append(count=3)])
        assert await harness.events.end() == await end_of_log(harness.events) > start

    async def test_every_waiter_is_woken_by_an_append(self, harness: Harness) -> None:
        waiting = await wait_for_all(harness.events.changed(600), harness.events.changed(600))
        await harness.events.append([fresh_append()])
        assert await end_within(harness.runtime, 300, waiting)

    async def test_an_append_before_the_wait_ends_the_wait(self, harness: Harness) -> None:
        await harness.events.follow(await end_of_log(harness.events), 10)
        await harness.events.append([fresh_append()])
        assert await end_within(
            harness.runtime, 300, await wait_for_all(harness.events.changed(600))
        )

    async def test_a_wait_ends_when_its_time_is_up(self, harness: Harness) -> None:
        assert await end_within(
            harness.runtime, 300, await wait_for_all(harness.events.changed(10))
        )


class LargeEventsContract(Contract):
    needs = frozenset({"events", "large_events"})

    async def test_a_page_ends_with_the_event_that_makes_it_full(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append(
            [sized_append(FOLLOW_BYTES - 10, 9, 1), sized_append(1, FOLLOW_BYTES // 2)]
        )
        assert await _page_sizes(harness, start) == [
            [FOLLOW_BYTES - 10, 9, 1],
            [1, FOLLOW_BYTES // 2],
        ]

    async def test_an_event_larger_than_a_page_makes_one_by_itself(self, harness: Harness) -> None:
        start = await end_of_log(harness.events)
        await harness.events.append([sized_append(FOLLOW_BYTES + 1, 1)])
        assert await _page_sizes(harness, start) == [[FOLLOW_BYTES + 1], [1]]


class LargeEventsAfterRestartContract(Contract):
    needs = frozenset({"events", "large_events", "durable"})

    async def test_pages_are_as_full_as_before(self, harness: Harness) -> None:
        """After a restart events are read from storage and not from a cache."""
        start = await end_of_log(harness.events)
        await harness.events.append(
            [
                sized_append(FOLLOW_BYTES - 10, 9, 1),
                sized_append(1, FOLLOW_BYTES + 1),
                sized_append(1),
            ]
        )
        await reopen(harness)
        assert await _page_sizes(harness, start) == [
            [FOLLOW_BYTES - 10, 9, 1],
            [1, FOLLOW_BYTES + 1],
            [1],
        ]


class EventStoreAfterRestartContract(Contract):
    needs = frozenset({"events", "durable"})

    async def test_an_accepted_append_is_there_again(self, harness: Harness) -> None:
        append = await appended(harness, count=2)
        before = await harness.events.read([(append.stream, 0)])
        await reopen(harness)
        assert await harness.events.read([(append.stream, 0)]) == before
        assert len(before) == 2

    async def test_a_stale_version_is_still_refused(self, harness: Harness) -> None:
        append = await appended(harness)
        await reopen(harness)
        assert await harness.events.append([fresh_append(append.stream), append]) == [
            Stale(1),
            Appended(1),
        ]

    async def test_positions_go_on_rising(self, harness: Harness) -> None:
        await harness.events.append([fresh_append()])
        end = await end_of_log(harness.events)
        await reopen(harness)
        append = await appended(harness)
        assert append.stream in {event.stream for event in await follow_from(harness.events, end)}


async def _ids_of(harness: Harness, stream: str) -> list[bytes]:
    return [event.id for event in await harness.events.read([(stream, 0)])]


async def _page_sizes(harness: Harness, after: int) -> list[list[int]]:
    """How much data each event has, page by page to the end of the log."""
    sizes: list[list[int]] = []
    while page := await harness.events.follow(after, 100):
        sizes.append([len(event.data) for event in page])
        after = page[-1].position
    return sizes
