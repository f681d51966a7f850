"""The promises of a store about undispatched jobs, which a relay moves to a separate queue."""

from gesta.ports.checkpoints import Move
from gesta.ports.job_queue import Job
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import (
    fresh_job,
    fresh_name,
    fresh_quarantined,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract

#: More than any test leaves behind, so that jobs of others do not crowd out ours.
MANY = 10_000


class UndispatchedJobsContract(Contract):
    needs = frozenset({"read_model", "checkpoints", "undispatched_jobs"})

    async def test_views_pending_jobs_and_checkpoint_are_written_together(
        self, harness: Harness
    ) -> None:
        name, view, job = fresh_name(), fresh_view(), fresh_job(fresh_name())
        poison = fresh_quarantined(fresh_name("tenant"))
        assert (
            await harness.undispatched_jobs.save_with_jobs(
                [view], [job], [poison], [Move(name, 0, 7)]
            )
            is True
        )  # S0-1
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.read_model.quarantined(poison.tenant, 10) == [poison]
        assert await _undispatched(harness, [job]) == [job]

    async def test_a_projector_that_was_overtaken_makes_nothing_pending(
        self, harness: Harness
    ) -> None:
        name, view, job = fresh_name(), fresh_view(), fresh_job(fresh_name())
        await harness.checkpoints.move([Move(name, 0, 7)])
        assert (
            await harness.undispatched_jobs.save_with_jobs([view], [job], [], [Move(name, 0, 5)])
            is False
        )
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await _undispatched(harness, [job]) == []

    async def test_an_undispatched_job_is_read_as_it_was_written(self, harness: Harness) -> None:
        job = fresh_job(
            fresh_name(), kind="reconcile", due_ms=12_345, priority=2, possibly_executed=True
        )
        await _write(harness, [job])
        assert await _undispatched(harness, [job]) == [job]

    async def test_a_job_stays_pending_until_it_is_relayed(self, harness: Harness) -> None:
        jobs = [fresh_job(fresh_name()) for _ in range(3)]
        ids = [job.id for job in jobs]
        await _write(harness, jobs)
        assert await harness.undispatched_jobs.find_undispatched([*ids, "other-1"]) == set(ids)
        assert await harness.undispatched_jobs.remove_undispatched([*ids[:2], "other-1"]) == set(
            ids[:2]
        )
        assert await harness.undispatched_jobs.remove_undispatched(ids[:2]) == set()
        assert await harness.undispatched_jobs.find_undispatched(ids) == {ids[2]}
        assert await _undispatched(harness, jobs) == [jobs[2]]

    async def test_a_job_that_is_pending_already_stays_as_it_is(self, harness: Harness) -> None:
        job = fresh_job(fresh_name())
        await _write(harness, [job])
        await _write(
            harness, [Job(job.id, job.tenant, job.flow, job.request_id, 1, possibly_executed=True)]
        )
        assert await _undispatched(harness, [job]) == [job]

    async def test_no_more_undispatched_jobs_are_returned_than_asked_for(
        self, harness: Harness
    ) -> None:
        await _write(harness, [fresh_job(fresh_name()) for _ in range(3)])
        assert len(await harness.undispatched_jobs.undispatched(2)) == 2

    async def test_jobs_of_flows_that_are_left_out_fill_no_page(self, harness: Harness) -> None:
        flow = f"contract.{fresh_name('flow')}"
        stuck, job = [fresh_job(flow) for _ in range(5)], fresh_job("contract.other")
        await _write(harness, [*stuck, job])
        found = await harness.undispatched_jobs.undispatched(MANY, [flow, "contract.third"])
        assert job in found
        assert not any(one.flow == flow for one in found)
        assert await _undispatched(harness, stuck) == stuck

    async def test_a_large_batch_of_undispatched_jobs_is_kept(self, harness: Harness) -> None:
        jobs = [fresh_job(fresh_name()) for _ in range(700)]
        await _write(harness, jobs)
        assert await _undispatched(harness, jobs) == jobs
        assert await harness.undispatched_jobs.remove_undispatched([job.id for job in jobs]) == {
            job.id for job in jobs
        }
        assert await _undispatched(harness, jobs) == []

    async def test_undispatched_jobs_are_returned_fairly_by_tenant(self, harness: Harness) -> None:
        """A late tenant neither waits behind another's many jobs nor overtakes by more than its
        turn.
        """
        flood, late = fresh_name("tenant"), fresh_name("tenant")
        floods, lates = [_of(flood) for _ in range(6)], [_of(late) for _ in range(3)]
        await _write(harness, floods)
        await harness.undispatched_jobs.remove_undispatched([job.id for job in floods[:2]])
        await _write(harness, lates)
        found = await _undispatched(harness, [*floods, *lates])
        assert [job for job in found if job.tenant == flood] == floods[2:]
        assert [job for job in found if job.tenant == late] == lates
        for n in range(3):
            assert {job.tenant for job in found[2 * n : 2 * n + 2]} == {flood, late}

    async def test_a_rebuild_keeps_undispatched_jobs(self, harness: Harness) -> None:
        """A rebuild counts them as dispatched, so they would not be written again."""
        job = fresh_job(fresh_name())
        await _write(harness, [job])
        assert await (await harness.read_model.shadow()).swap([fresh_name()], 0, []) is True
        assert await _undispatched(harness, [job]) == [job]  # S0-4


class UndispatchedJobsAfterRestartContract(Contract):
    needs = frozenset({"undispatched_jobs", "durable"})

    async def test_pending_jobs_are_there_again(self, harness: Harness) -> None:
        job = fresh_job(fresh_name())
        await _write(harness, [job])
        await reopen(harness)
        assert await _undispatched(harness, [job]) == [job]


async def _write(harness: Harness, jobs: list[Job]) -> None:
    assert await harness.undispatched_jobs.save_with_jobs([], jobs, [], []) is True


async def _undispatched(harness: Harness, own: list[Job]) -> list[Job]:
    """Those of these jobs that are undispatched, in order."""
    ids = {job.id for job in own}
    return [job for job in await harness.undispatched_jobs.undispatched(MANY) if job.id in ids]


def _of(tenant: str) -> Job:
    job = fresh_job("contract.flow")
    return Job(job.id, tenant, job.flow, job.request_id, 1)
