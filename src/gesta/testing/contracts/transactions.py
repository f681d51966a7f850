"""What every store whose ports share a database promises: project and record happen whole or not at
all.
"""

from gesta.ports.checkpoints import Move
from gesta.ports.event_store import Appended, Claimed, Stale
from gesta.ports.job_queue import Ack, Drop, Job, Release
from gesta.ports.transactions import Entry, Recording
from gesta.testing.contracts.concurrency import end_within, race, wait_for_all
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.job_queue import LEASE_SECONDS, take
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_job,
    fresh_name,
    fresh_quarantined,
    fresh_stream,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract


class ProjectContract(Contract):
    needs = frozenset({"read_model", "checkpoints", "queue", "unique_jobs", "transactions"})

    async def test_views_jobs_and_checkpoint_are_written_together(self, harness: Harness) -> None:
        name, flow, view = fresh_name(), fresh_name(), fresh_view()
        poison = fresh_quarantined(fresh_name("tenant"))
        job = fresh_job(flow)
        assert (
            await harness.transactions.project([view], [job], [poison], [Move(name, 0, 7)]) is True
        )
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.read_model.quarantined(poison.tenant, 10) == [poison]
        assert [one.job.id for one in await take(harness, flow)] == [job.id]

    async def test_a_projector_that_was_overtaken_writes_nothing(self, harness: Harness) -> None:
        name, view, job = fresh_name(), fresh_view(), fresh_job(fresh_name())
        poison = fresh_quarantined(fresh_name("tenant"))
        await harness.transactions.project([], [], [], [Move(name, 0, 7)])
        assert (
            await harness.transactions.project([view], [job], [poison], [Move(name, 0, 5)]) is False
        )
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.quarantined(poison.tenant, 10) == []
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_several_checkpoints_are_moved_together_or_not_at_all(
        self, harness: Harness
    ) -> None:
        """Whichever of them another projector has moved."""
        names, view, job = [fresh_name() for _ in range(3)], fresh_view(), fresh_job(fresh_name())
        assert (
            await harness.transactions.project(
                [], [], [], [Move(name, 0, 7 + n, 0) for n, name in enumerate(names)]
            )
            is True
        )
        for overtaken in names:
            before = {name: await harness.checkpoints.position(name) for name in names}
            stale = [
                Move(name, place - (name == overtaken), 20, 0) for name, place in before.items()
            ]
            assert await harness.transactions.project([view], [job], [], stale) is False
            assert {name: await harness.checkpoints.position(name) for name in names} == before
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.unique_jobs.find([job.id]) == set()
        moves = [Move(name, 7 + n, 20, 0) for n, name in enumerate(names)]
        assert await harness.transactions.project([view], [job], [], moves) is True
        assert [await harness.checkpoints.position(name) for name in names] == [20, 20, 20]

    async def test_each_checkpoint_is_compared_with_its_own_mark(self, harness: Harness) -> None:
        one, other = fresh_name(), fresh_name()
        await harness.checkpoints.move([Move(one, 0, 7)])
        await (await harness.read_model.shadow()).swap([one], 5, [])
        assert (
            await harness.transactions.project(
                [], [], [], [Move(one, 5, 9, 0), Move(other, 0, 9, 0)]
            )
            is False
        )
        assert (
            await harness.transactions.project(
                [], [], [], [Move(one, 5, 9, 7), Move(other, 0, 9, 7)]
            )
            is False
        )
        assert (
            await harness.transactions.project(
                [], [], [], [Move(one, 5, 9, 7), Move(other, 0, 9, 0)]
            )
            is True
        )

    async def test_projectors_that_share_some_checkpoints_never_wait_in_a_circle(
        self, harness: Harness
    ) -> None:
        names = [fresh_name() for _ in range(8)]
        answers = await race(
            *(
                harness.transactions.project([], [], [], [Move(name, 0, 7, 0) for name in chosen])
                for chosen in (names, names[::-1]) * 4
            )
        )
        assert sorted(answers) == [False] * 7 + [True]

    async def test_of_projectors_that_race_one_dispatches(self, harness: Harness) -> None:
        """Even if the job of the first one is done with before the second one comes."""
        name, flow, token = fresh_name(), fresh_name(), fresh_name("token")
        job = fresh_job(flow)
        answers = await race(
            *(harness.transactions.project([], [job], [], [Move(name, 0, 7)]) for _ in range(4))
        )
        assert sorted(answers) == [False, False, False, True]  # R1-20, K-13
        assert len(await take(harness, flow, token)) == 1
        await harness.queue.settle([Ack(job.id, token)])
        assert await harness.transactions.project([], [job], [], [Move(name, 0, 7)]) is False
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_a_job_that_is_live_already_stops_nothing(self, harness: Harness) -> None:
        name, flow = fresh_name(), fresh_name()
        live, new = fresh_job(flow), fresh_job(flow)
        await harness.queue.put([live])
        assert await harness.transactions.project([], [live, new], [], [Move(name, 0, 7)]) is True
        assert len(await take(harness, flow)) == 2
        assert await harness.checkpoints.position(name) == 7

    async def test_a_projected_job_wakes_waiters(self, harness: Harness) -> None:
        waiting = await wait_for_all(harness.queue.ready(600))
        await harness.transactions.project(
            [], [fresh_job(fresh_name())], [], [Move(fresh_name(), 0, 7)]
        )
        assert await end_within(harness.runtime, 300, waiting)


class RecordContract(Contract):
    needs = frozenset({"events", "queue", "unique_jobs", "transactions"})

    async def test_events_are_appended_and_their_job_is_acked(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        append = fresh_append()
        assert await harness.transactions.record([Entry(append, Ack(job.id, token))]) == [
            Recording(Appended(1), "done")
        ]
        assert await _count(harness, append.stream) == 1
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_events_are_appended_and_their_job_is_released(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        append, due_ms = fresh_append(), harness.runtime.now_ms() + 60_000
        assert await harness.transactions.record(
            [Entry(append, Release(job.id, token, due_ms))]
        ) == [Recording(Appended(1), "done")]
        assert await take(harness, job.flow) == []
        harness.runtime.advance_to(due_ms)
        assert [(one.job.id, one.takes) for one in await take(harness, job.flow)] == [(job.id, 1)]

    async def test_refused_events_leave_the_job_with_its_holder(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        refused = fresh_append(expected=7)
        (acked,) = await harness.transactions.record([Entry(refused, Ack(job.id, token))])
        (released,) = await harness.transactions.record([Entry(refused, Release(job.id, token, 0))])
        assert acked == released == Recording(Stale(0), None)
        assert await take(harness, job.flow) == []
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]

    async def test_a_claim_that_is_taken_leaves_the_job_with_its_holder(
        self, harness: Harness
    ) -> None:
        job, token = await held_job(harness)
        claim = fresh_claim()
        await harness.events.append([fresh_append(claim=claim)])
        (recording,) = await harness.transactions.record(
            [Entry(fresh_append(claim=fresh_claim(claim.name)), Ack(job.id, token))]
        )
        assert recording == Recording(Claimed(claim.request_id, claim.content), None)
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]

    async def test_a_lost_lease_does_not_stop_evidence_from_being_recorded(
        self, harness: Harness
    ) -> None:
        job, late = await held_job(harness)
        harness.runtime.advance(LEASE_SECONDS)
        holder = fresh_name("token")
        await take(harness, job.flow, holder)
        append = fresh_append()
        assert await harness.transactions.record([Entry(append, Ack(job.id, late))]) == [
            Recording(Appended(1), "lost")
        ]  # K-12
        assert await _count(harness, append.stream) == 1
        assert await harness.queue.settle([Ack(job.id, holder)]) == ["done"]

    async def test_of_workers_that_race_for_a_version_one_records(self, harness: Harness) -> None:
        stream = fresh_stream()
        held = [await held_job(harness) for _ in range(4)]
        entries = [Entry(fresh_append(stream), Ack(job.id, token)) for job, token in held]
        recordings = [
            recording
            for (recording,) in await race(
                *(harness.transactions.record([entry]) for entry in entries)
            )
        ]
        assert sorted(repr(one) for one in recordings) == sorted(
            [repr(Recording(Appended(1), "done")), *[repr(Recording(Stale(1), None))] * 3]
        )  # R1-35
        left = await harness.unique_jobs.find([job.id for job, _ in held])
        assert len(left) == 3

    async def test_a_recording_repeated_after_a_lost_answer_still_settles_the_job(
        self, harness: Harness
    ) -> None:
        job, token = await held_job(harness)
        append = fresh_append()
        await harness.events.append([append])
        assert await harness.transactions.record([Entry(append, Ack(job.id, token))]) == [
            Recording(Appended(1), "done")
        ]  # S1-16
        assert await _count(harness, append.stream) == 1
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_events_without_a_job_and_a_job_without_events_are_recorded_too(
        self, harness: Harness
    ) -> None:
        job, token = await held_job(harness)
        append = fresh_append()
        recordings = await harness.transactions.record(
            [Entry(append, None), Entry(None, Ack(job.id, token)), Entry(None, None)]
        )
        assert recordings == [
            Recording(Appended(1), None),
            Recording(None, "done"),
            Recording(None, None),
        ]
        assert await _count(harness, append.stream) == 1

    async def test_a_dropped_job_and_its_last_events_go_together(self, harness: Harness) -> None:
        job = fresh_job(fresh_name())
        await harness.queue.put([job])
        append = fresh_append()
        assert await harness.transactions.record([Entry(append, Drop(job.id))]) == [
            Recording(Appended(1), "done")
        ]
        assert await _count(harness, append.stream) == 1
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_where_there_is_no_job_to_drop_the_events_are_appended(
        self, harness: Harness
    ) -> None:
        append = fresh_append()
        recordings = await harness.transactions.record(
            [Entry(append, Drop(fresh_job(fresh_name()).id))]
        )
        assert recordings == [Recording(Appended(1), "absent")]
        assert await _count(harness, append.stream) == 1

    async def test_a_leased_job_stops_the_events_of_a_drop(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        append = fresh_append()
        assert await harness.transactions.record([Entry(append, Drop(job.id))]) == [
            Recording(None, "active")
        ]
        assert await _count(harness, append.stream) == 0
        assert await harness.queue.settle([Ack(job.id, token)]) == ["done"]

    async def test_refused_events_undo_the_drop(self, harness: Harness) -> None:
        job = fresh_job(fresh_name())
        await harness.queue.put([job])
        (recording,) = await harness.transactions.record(
            [Entry(fresh_append(expected=7), Drop(job.id), job)]
        )
        assert recording.verdict == Stale(0)
        assert recording.settled != "done"
        assert [one.job.id for one in await take(harness, job.flow)] == [job.id]

    async def test_each_entry_meets_what_the_ones_before_it_wrote(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        first = fresh_append()
        entries = [
            Entry(first, None),
            Entry(fresh_append(first.stream), None),
            Entry(fresh_append(first.stream, expected=1), Ack(job.id, token)),
            Entry(None, Ack(job.id, token)),
        ]
        recordings = await harness.transactions.record(entries)
        assert recordings == [
            Recording(Appended(1), None),
            Recording(Stale(1), None),
            Recording(Appended(2), "done"),
            Recording(None, "absent"),
        ]
        assert await _count(harness, first.stream) == 2

    async def test_a_refused_entry_does_not_touch_the_others(self, harness: Harness) -> None:
        held = [await held_job(harness) for _ in range(3)]
        appends = [fresh_append(), fresh_append(expected=7), fresh_append()]
        entries = [
            Entry(append, Ack(job.id, token))
            for append, (job, token) in zip(appends, held, strict=True)
        ]
        recordings = await harness.transactions.record(entries)
        assert recordings == [
            Recording(Appended(1), "done"),
            Recording(Stale(0), None),
            Recording(Appended(1), "done"),
        ]
        assert await harness.unique_jobs.find([job.id for job, _ in held]) == {held[1][0].id}

    async def test_a_lost_lease_does_not_touch_the_other_entries(self, harness: Harness) -> None:
        (first, token), (lost, _) = await held_job(harness), await held_job(harness)
        appends = [fresh_append(), fresh_append()]
        entries = [
            Entry(appends[0], Ack(first.id, token)),
            Entry(appends[1], Ack(lost.id, fresh_name("token"))),
        ]
        assert await harness.transactions.record(entries) == [
            Recording(Appended(1), "done"),
            Recording(Appended(1), "lost"),
        ]
        assert [await _count(harness, append.stream) for append in appends] == [1, 1]
        assert await harness.unique_jobs.find([first.id, lost.id]) == {lost.id}

    async def test_a_large_batch_of_entries_is_recorded(self, harness: Harness) -> None:
        flow, token = fresh_name(), fresh_name("token")
        jobs = [fresh_job(flow) for _ in range(300)]
        await harness.queue.put(jobs)
        await take(harness, flow, token, free=300)
        # Outcomes, and journals of attempts that go on: their jobs stay.
        entries = [
            Entry(fresh_append(), Ack(job.id, token) if number % 2 else None)
            for number, job in enumerate(jobs)
        ]
        journalled, ended = Recording(Appended(1), None), Recording(Appended(1), "done")
        assert await harness.transactions.record(entries) == [journalled, ended] * 150
        left = await harness.unique_jobs.find([job.id for job in jobs])
        assert left == {job.id for job in jobs[::2]}

    async def test_a_refused_journal_refuses_no_other_entry_of_its_batch(
        self, harness: Harness
    ) -> None:
        job, token = await held_job(harness)
        taken, other = fresh_append(), fresh_append()
        await harness.events.append([fresh_append(taken.stream)])
        recordings = await harness.transactions.record(
            [Entry(taken, None), Entry(other, Ack(job.id, token))]
        )
        assert recordings == [Recording(Stale(1), None), Recording(Appended(1), "done")]
        assert await _count(harness, other.stream) == 1

    async def test_recorded_events_wake_the_follower(self, harness: Harness) -> None:
        waiting = await wait_for_all(harness.events.changed(600))
        await harness.transactions.record([Entry(fresh_append(), None)])
        assert await end_within(harness.runtime, 300, waiting)

    async def test_a_recorded_release_wakes_waiters(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        await end_within(harness.runtime, 5, await wait_for_all(harness.queue.ready(0)))
        waiting = await wait_for_all(harness.queue.ready(600))
        await harness.transactions.record([Entry(fresh_append(), Release(job.id, token, 0))])
        assert await end_within(harness.runtime, 300, waiting)


class TransactionsAfterRestartContract(Contract):
    needs = frozenset(
        {"events", "read_model", "checkpoints", "queue", "unique_jobs", "transactions", "durable"}
    )

    async def test_what_was_recorded_is_there_again(self, harness: Harness) -> None:
        job, token = await held_job(harness)
        append = fresh_append()
        await harness.transactions.record([Entry(append, Ack(job.id, token))])
        await reopen(harness)
        assert await _count(harness, append.stream) == 1
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_what_was_projected_is_there_again(self, harness: Harness) -> None:
        name, view, job = fresh_name(), fresh_view(), fresh_job(fresh_name())
        await harness.transactions.project([view], [job], [], [Move(name, 0, 7)])
        await reopen(harness)
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.unique_jobs.find([job.id]) == {job.id}


async def held_job(harness: Harness) -> tuple[Job, str]:
    """A new job of a flow of its own, and the token that holds it."""
    job, token = fresh_job(fresh_name()), fresh_name("token")
    await harness.queue.put([job])
    assert len(await take(harness, job.flow, token)) == 1
    return job, token


async def _count(harness: Harness, stream: str) -> int:
    return len(await harness.events.read([(stream, 0)]))
