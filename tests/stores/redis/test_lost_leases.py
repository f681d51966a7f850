"""A Redis that loses its last second: a lease that is gone must not lead to a second call."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gesta import Done, Engine, OutcomeTimeout, Payload, flow
from gesta.runtime.settings import load
from gesta.testing.valkey_server import ValkeyServer


class Parcel(Payload, frozen=True):
    number: int


async def test_a_call_whose_lease_redis_lost_is_not_made_again_where_a_person_decides(tmp_path):
    calls: list[str] = []
    called, let_go = asyncio.Event(), asyncio.Event()

    def parcel_of(worker: str):
        @flow("test.parcel", on_unknown="manual")
        async def send(payload: Parcel, attempt) -> Done:
            calls.append(worker)
            called.set()
            await let_go.wait()
            return Done(id=worker)

        return send

    async with ValkeyServer(durable=True) as valkey:
        url = f"sqlite:///{tmp_path}/gesta.db"
        settings = load({"url": url, "queue_url": valkey.url, "views_url": valkey.url})
        async with Engine(flows=[parcel_of("first")], settings=settings) as first:
            soon = datetime.now(UTC) + timedelta(seconds=1)
            request = await first.submit(Parcel(number=1), deliver_at=soon)
            queue = first.pipeline.environment.stores.unique_jobs
            assert queue is not None
            while not await queue.find([f"{request.id}-1"]):
                await asyncio.sleep(0.01)
            assert not called.is_set(), "the copy must be from before the lease"
            await valkey.copy_data(Path(tmp_path, "synced"))
            await asyncio.wait_for(called.wait(), 60)
            valkey.kill()
            valkey.restore_data(Path(tmp_path, "synced"))
            await valkey.start()
            async with Engine(flows=[parcel_of("second")], settings=settings) as second:
                seen = await second.request(request.id)
                # The second worker leases the job that came back, and finds that it was begun.
                with suppress(OutcomeTimeout):
                    await seen.outcome(timeout=8)
                assert calls == ["first"]  # K-10
                let_go.set()
                # Evidence that the effect happened counts, whatever became of the lease.
                async with asyncio.timeout(60):
                    while (await second.get(request.id)).state.status != "completed":
                        await asyncio.sleep(0.02)
    assert calls == ["first"]
