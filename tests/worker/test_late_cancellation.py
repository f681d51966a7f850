"""A request that is cancelled while its job is being released or held ends as cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gesta import Retry
from gesta.domain.commands import Cancel
from gesta.worker.release import JobRelease
from tests.world import FLOW, Gate, Note, Provider, engine_of, let_run, pass_time, types_of


async def test_a_request_that_is_cancelled_while_a_pause_takes_hold_of_its_job_does_not_stay_queued(
    gesta, monkeypatch
):
    provider = Provider()
    reported: list[str] = []
    async with engine_of(provider) as engine:
        await let_run(gesta)
        await engine.admin.pause(flow=FLOW)

        hold = JobRelease.hold

        async def held(*args: Any, **options: Any) -> None:
            # The worker has read pause and request, and its hold is on the way.
            if not reported:
                reported.append(await request.cancel())
            await hold(*args, **options)

        monkeypatch.setattr(JobRelease, "hold", held)
        request = await engine.submit(Note())
        await pass_time(gesta, 5)
        assert (reported, await request.status()) == (["queued"], "cancelled")
        assert await engine.pipeline.environment.stores.job_inspection.jobs("", 10) == []
    assert provider.calls == []


@pytest.mark.parametrize(
    "after_seconds", [7_200.0, 900.01], ids=["far", "near the horizon of the queue"]
)
async def test_a_request_whose_attempt_fails_between_the_two_steps_of_a_cancel_is_cancelled(
    gesta, monkeypatch, after_seconds
):
    gate = Gate(Retry("busy", after_seconds=after_seconds))
    async with engine_of(Provider(gate), on_unknown="manual") as engine:
        request = await engine.submit(Note())
        await gate.reached.wait()
        apply = engine.pipeline.recorder.apply

        async def late(view, command, *args, **kwargs):
            if isinstance(command, Cancel) and command.active:
                gate.opened.set()
                await let_run(gesta)
                gesta.advance(0.05)
                await let_run(gesta)
            return await apply(view, command, *args, **kwargs)

        monkeypatch.setattr(engine.pipeline.recorder, "apply", late)
        cancelling = asyncio.ensure_future(request.cancel())
        await pass_time(gesta, 1)
        assert await cancelling == "cancelled"
        await pass_time(gesta, 1_100, 20)
        assert await types_of(engine, request.id) == [
            "RequestCreated",
            "AttemptFailed",
            "RequestUpdated",
            "Cancelled",
        ]
