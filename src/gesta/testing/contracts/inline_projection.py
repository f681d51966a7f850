"""The promises of a store that projects events in the appending commit.

It does so only if the checkpoints are directly before these events.
"""

from gesta.errors import Fenced
from gesta.ports.checkpoints import Move
from gesta.ports.event_store import Append, Appended, Claimed, LeadsElsewhere, Stale
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Ack, Release
from gesta.ports.transactions import Entry, Projection, Recording
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.job_queue import take
from gesta.testing.contracts.samples import (
    fresh_append,
    fresh_claim,
    fresh_job,
    fresh_name,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract
from gesta.testing.contracts.transactions import held_job


class InlineProjectionContract(Contract):
    needs = frozenset(
        {
            "events",
            "read_model",
            "checkpoints",
            "queue",
            "unique_jobs",
            "transactions",
            "inline_projection",
        }
    )

    async def test_events_view_job_and_checkpoints_are_written_together(
        self, harness: Harness
    ) -> None:
        names, flow, view = [fresh_name(), fresh_name()], fresh_name(), fresh_view()
        job, append = fresh_job(flow), fresh_append(count=2)
        projection = Projection([view], [job], await _checkpoints_at_end(harness, *names))
        before = await harness.events.end()
        assert await harness.transactions.append([append], projection) == [Appended(2)]
        assert projection.reached == before + 2 == await harness.events.end()
        assert [await harness.checkpoints.position(name) for name in names] == [before + 2] * 2
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert [one.job.id for one in await take(harness, flow)] == [job.id]

    async def test_one_follows_the_other(self, harness: Harness) -> None:
        name = fresh_name()
        await _checkpoints_at_end(harness, name)
        for _ in range(3):
            projection = Projection([fresh_view()], [], {name: 0})
            await harness.transactions.append([fresh_append(), fresh_append()], projection)
            assert (
                projection.reached
                == await harness.events.end()
                == await harness.checkpoints.position(name)
            )

    async def test_a_checkpoint_before_a_foreign_event_is_not_moved(self, harness: Harness) -> None:
        """The events are appended; the projector comes for them, and for what lies between."""
        name, view, flow = fresh_name(), fresh_view(), fresh_name()
        await _checkpoints_at_end(harness, name)
        place = await harness.events.end()
        await harness.events.append([fresh_append()])
        projection = Projection([view], [fresh_job(flow)], {name: 0})
        assert await harness.transactions.append([fresh_append()], projection) == [Appended(1)]
        assert projection.reached is None
        assert await harness.checkpoints.position(name) == place
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await take(harness, flow) == []

    async def test_one_checkpoint_at_another_position_keeps_all_from_moving(
        self, harness: Harness
    ) -> None:
        names, view = [fresh_name(), fresh_name()], fresh_view()
        await _checkpoints_at_end(harness, names[0])
        projection = Projection([view], [], dict.fromkeys(names, 0))
        await harness.events.append([fresh_append()])
        await harness.checkpoints.move([Move(names[1], 0, await harness.events.end())])
        await harness.transactions.append([fresh_append()], projection)
        assert projection.reached is None
        assert await harness.read_model.get([key_of(view)]) == {}

    async def test_a_swap_of_the_views_stops_it(self, harness: Harness) -> None:
        """The checkpoints moved back, and jobs must not be put twice: the projection is refused."""
        name = fresh_name()
        await harness.events.append([fresh_append()])
        checkpoints = await _checkpoints_at_end(harness, name)
        await (await harness.read_model.shadow()).swap([name], await harness.events.end(), [])
        projection = Projection([fresh_view()], [], checkpoints)
        await harness.transactions.append([fresh_append()], projection)
        assert projection.reached is None

    async def test_a_refused_append_among_them_leaves_them_to_the_projector(
        self, harness: Harness
    ) -> None:
        name, view, claim = fresh_name(), fresh_view(), fresh_claim()
        await harness.events.append([fresh_append(claim=claim)])
        for refused in (
            fresh_append(expected=7),
            fresh_append(claim=fresh_claim(claim.name)),
            fresh_append(first=fresh_claim(claim.name)),
        ):
            projection = Projection(
                [view, fresh_view()], [], await _checkpoints_at_end(harness, name)
            )
            verdicts = await harness.transactions.append([fresh_append(), refused], projection)
            assert verdicts[0] == Appended(1)
            assert isinstance(verdicts[1], Stale | Claimed | LeadsElsewhere)
            assert projection.reached is None
        assert await harness.read_model.get([key_of(view)]) == {}

    async def test_an_append_that_stood_there_already_is_not_projected_again(
        self, harness: Harness
    ) -> None:
        """Its job may have been taken and done since."""
        name, flow, append = fresh_name(), fresh_name(), fresh_append()
        await harness.events.append([append])
        projection = Projection(
            [fresh_view()], [fresh_job(flow)], await _checkpoints_at_end(harness, name)
        )
        assert await harness.transactions.append([append], projection) == [Appended(1)]
        assert projection.reached is None
        assert await take(harness, flow) == []

    async def test_an_outcome_is_recorded_acked_and_shown_together(self, harness: Harness) -> None:
        name, view, append = fresh_name(), fresh_view(), fresh_append()
        job, token = await held_job(harness)
        projection = Projection([view], [], await _checkpoints_at_end(harness, name))
        entry = Entry(append, Ack(job.id, token), None, view)
        assert await harness.transactions.record([entry], projection) == [
            Recording(Appended(1), "done")
        ]
        assert (
            projection.reached
            == await harness.events.end()
            == await harness.checkpoints.position(name)
        )
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.unique_jobs.find([job.id]) == set()

    async def test_what_is_recorded_otherwise_comes_to_the_same(self, harness: Harness) -> None:
        """Shown at once or left to the projector, never anything between."""
        name, view, append = fresh_name(), fresh_view(), fresh_append()
        job, token = await held_job(harness)
        projection = Projection([view], [], await _checkpoints_at_end(harness, name))
        place = await harness.events.end()
        assert await harness.transactions.record(
            [Entry(append, Release(job.id, token, 0), None, view)], projection
        ) == [Recording(Appended(1), "done")]
        is_shown = await harness.read_model.get([key_of(view)]) != {}
        assert is_shown == (projection.reached is not None)
        assert await harness.checkpoints.position(name) == (place + 1 if is_shown else place)

    async def test_a_large_batch_is_appended_and_projected(self, harness: Harness) -> None:
        name, flow = fresh_name(), fresh_name()
        checkpoints = await _checkpoints_at_end(harness, name)
        appends: list[Append] = [fresh_append(claim=fresh_claim()) for _ in range(300)]
        views, jobs = [fresh_view() for _ in range(300)], [fresh_job(flow) for _ in range(300)]
        projection = Projection(views, jobs, checkpoints)
        assert await harness.transactions.append(appends, projection) == [Appended(1)] * 300
        assert projection.reached == await harness.events.end()
        assert set(await harness.read_model.get([key_of(view) for view in views])) == {
            key_of(view) for view in views
        }
        assert await harness.unique_jobs.find([job.id for job in jobs]) == {job.id for job in jobs}


class InlineProjectionFenceContract(Contract):
    needs = frozenset(
        {
            "events",
            "checkpoints",
            "queue",
            "unique_jobs",
            "transactions",
            "fences",
            "inline_projection",
        }
    )

    async def test_a_fence_that_keeps_jobs_out_keeps_the_whole_commit_out(
        self, harness: Harness
    ) -> None:
        name, flow, append = fresh_name(), fresh_name(), fresh_append()
        job, token = await held_job(harness)
        projection = Projection(
            [fresh_view()], [fresh_job(flow)], await _checkpoints_at_end(harness, name)
        )
        fence = Fence("filling", "elsewhere")
        await harness.fences.put_up(fence)
        entry = Entry(append, Ack(job.id, token), None, fresh_view())
        writings = (
            lambda: harness.transactions.append([fresh_append()], projection),
            lambda: harness.transactions.record([entry], projection),
        )
        for write in writings:
            try:
                await write()
            except Fenced:
                continue
            raise AssertionError("a job was put through the fence")
        assert await harness.events.read([(append.stream, 0)]) == []
        await harness.fences.take_down(fence)
        assert await take(harness, flow) == []


async def _checkpoints_at_end(harness: Harness, *names: str) -> dict[str, int]:
    """Checkpoints of these names at the end of the log."""
    for name in names:
        place, end = await harness.checkpoints.position(name), await harness.events.end()
        if place != end:
            await harness.checkpoints.move([Move(name, place, end)])
    return dict.fromkeys(names, 0)
