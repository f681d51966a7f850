"""Processes that are killed between two steps of which SQS is one; another process goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from gesta import Done, Engine
from gesta.intake.inbound.boundary_dead_letters import Choice
from tests.stores.sqs.boundary_stage import Stage, boundary_stage
from tests.stores.sqs.killed_program import Parcel, effects_in, parcels, settings_of

pytestmark = pytest.mark.slow
#: The shortest that outlasts a lease: what a dead process had comes back after it.
VISIBILITY_SECONDS = 6


async def run_until_killed(point: str, folder: Path, url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stores.sqs.killed_program", point, str(folder), url
    )
    try:
        assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


#: Point, whether the first call is refused, and the effects before the kill.
POINTS = (
    ("enqueued, still undispatched", False, 0),
    ("leased, nothing done", False, 0),
    ("recorded, not deleted", False, 1),
    ("copied, not deleted", True, 0),
)


async def test_a_request_has_one_effect_wherever_its_process_is_killed(moto, prefix, tmp_path):
    """At all points at once: each spends its time waiting until SQS shows a message again."""
    async with asyncio.TaskGroup() as group:
        for number, (point, is_refused, effects_before) in enumerate(POINTS):
            folder = tmp_path / str(number)
            folder.mkdir()
            url = moto.queue_url(f"{prefix}n{number}", VISIBILITY_SECONDS)
            group.create_task(check_point(point, folder, url, is_refused, effects_before))


async def check_point(
    point: str, folder: Path, url: str, is_refused: bool, effects_before: int
) -> None:
    settings = settings_of(folder, url)
    async with Engine(flows=[parcels(folder)], settings=settings, work=False) as engine:
        request_id = (await engine.submit(Parcel(number=7, is_refused=is_refused))).id
    await run_until_killed(point, folder, url)
    assert len(effects_in(folder)) == effects_before, point
    async with Engine(flows=[parcels(folder)], settings=settings) as engine:
        request = await engine.request(request_id)
        assert isinstance(await request.outcome(timeout=40), Done), point
        stores = engine.pipeline.environment.stores
        async with asyncio.timeout(40):
            # Copies that are left find the request ended, and are deleted without a call.
            while await stores.job_inspection.count(10):
                await asyncio.sleep(0.2)
        assert await request.status() == "completed", point
    assert effects_in(folder) == ["7"], point  # K-3, K-4, K-9


async def test_a_call_that_was_cut_short_is_not_made_again_where_a_person_decides(
    moto, prefix, tmp_path
):
    url = moto.queue_url(prefix, VISIBILITY_SECONDS)
    settings = settings_of(tmp_path, url)
    async with Engine(flows=[parcels(tmp_path)], settings=settings, work=False) as engine:
        request_id = (await engine.submit(Parcel(number=7))).id
    await run_until_killed("called, not recorded", tmp_path, url)
    async with Engine(flows=[parcels(tmp_path)], settings=settings) as engine:
        request = await engine.request(request_id)
        async with asyncio.timeout(40):
            while await request.status() != "unknown":
                await asyncio.sleep(0.1)
    assert effects_in(tmp_path) == ["7"]  # K-7


async def test_a_dead_letter_that_was_sent_twice_is_one_letter(moto, prefix, tmp_path):
    url = moto.queue_url(prefix, VISIBILITY_SECONDS)
    async with boundary_stage(moto, prefix, tmp_path, consumes=False, flow="test.missing") as stage:
        await stage.send()
    # The flow of the team is missing: no repetition helps.
    await run_until_killed("buried, not deleted", tmp_path, url)
    async with boundary_stage(
        moto, prefix, tmp_path, visibility_seconds=VISIBILITY_SECONDS, flow="test.missing"
    ) as stage:
        await stage.until(lambda: two_copies(stage))
        await stage.until(stage.is_empty)
        (letter,) = await stage.letters.letters()
        assert (letter.copies, letter.message_id) == (2, "unique-message-id")  # K-15
        assert letter.error_type == "UnknownFlow"
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        assert len([one async for one in stage.letters.redrive(Choice())]) == 1
        await stage.until(stage.issues)
        await stage.until(stage.is_empty)
        assert len(await stage.issues()) == 1
        assert await stage.letters.letters() == []


async def two_copies(stage: Stage) -> bool:
    return await stage.dead(2)
