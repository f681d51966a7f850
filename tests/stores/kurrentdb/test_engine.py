"""The whole engine with its events in the KurrentDB double."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from gesta import Done, Engine, Payload, flow
from gesta.domain.stream_names import OURS
from gesta.errors import Conflict, StoreError
from gesta.runtime.settings import load
from gesta.testing.valkey_server import ValkeyServer

TENANT = "acme"
COUNT = 60
REQUESTS = 120


class Note(Payload, frozen=True):
    number: int


@asynccontextmanager
async def engine_on(folder, events_url, calls, name="notification.slack", keys=None, **options):
    @flow(name, on_unknown="resend")
    async def note(payload: Note, attempt) -> Done:
        calls[payload.number] += 1
        if keys is not None:
            keys.add((payload.number, attempt.key))
        return Done(id=str(payload.number))

    settings = load(
        {
            "url": f"sqlite:///{folder}/gesta.db",
            "events_url": events_url,
            "log_level": "critical",
            **options,
        }
    )
    async with Engine(flows=[note], settings=settings) as engine:
        yield engine


async def streams_of(raw):
    async with raw.errors(), await raw.newest(OURS) as events:
        return {event.stream_name async for event in events}


async def test_every_request_is_executed_once_and_its_events_are_in_the_double(
    tmp_path, double, raw
):
    calls: Counter[int] = Counter()
    async with engine_on(tmp_path, double.url, calls) as engine:
        requests = await engine.submit_many([Note(number=n) for n in range(COUNT)])
        outcomes = [await one.outcome(timeout=30) for one in requests]
        assert [one.id for one in outcomes if isinstance(one, Done)] == [
            str(n) for n in range(COUNT)
        ]
        streams = await streams_of(raw)
        assert {f"notification.slack.request-default-{one.id}" for one in requests} <= (
            streams
        )  # R0-17
    assert calls == Counter(range(COUNT))


@pytest.mark.parametrize("name", ["notification.email", "notification.sms", "notification.webhook"])
async def test_the_stream_of_a_channel_has_its_name(tmp_path, double, raw, name):
    async with engine_on(tmp_path, double.url, Counter(), name) as engine:
        request = await engine.submit(Note(number=1), tenant=TENANT)
        await request.outcome(timeout=30)
        assert f"{name}.request-acme-{request.id}" in await streams_of(raw)  # R1-9


async def test_a_key_leads_to_one_request_also_after_a_restart(tmp_path, double):
    calls: Counter[int] = Counter()
    async with engine_on(tmp_path, double.url, calls) as engine:
        first = await engine.submit(Note(number=1), key="k")
        await first.outcome(timeout=30)
    async with engine_on(tmp_path, double.url, calls) as engine:
        again = await engine.submit(Note(number=1), key="k")
        assert (again.id, again.verdict) == (first.id, "duplicate")
        with pytest.raises(Conflict):
            await engine.submit(Note(number=2), key="k")
    assert calls == {1: 1}


async def test_views_and_jobs_on_redis_beside_events_in_the_double(tmp_path, double):
    calls: Counter[int] = Counter()
    async with (
        ValkeyServer() as valkey,
        engine_on(
            tmp_path, double.url, calls, views_url=valkey.url, queue_url=valkey.url
        ) as engine,
    ):
        requests = await engine.submit_many([Note(number=n) for n in range(COUNT)])
        for request in requests:
            await request.outcome(timeout=30)
        valkey.command("FLUSHALL")
        async with asyncio.timeout(30):
            while len(await engine.find(status="sent", limit=1000)) < COUNT:
                await asyncio.sleep(0.02)
    assert calls == Counter(range(COUNT))


async def test_no_request_is_lost_or_doubled_while_the_double_is_killed_under_load(
    tmp_path, double_process, crash_seed
):
    dice = random.Random(f"double {crash_seed}")
    keys: set[tuple[int, str]] = set()
    calls: Counter[int] = Counter()
    accepted: dict[int, str] = {}

    async def submit(engine, number):
        """As a caller does: until it is answered, with the same key."""
        while number not in accepted:
            try:
                accepted[number] = (await engine.submit(Note(number=number), key=str(number))).id
            except StoreError:
                await asyncio.sleep(0.05)

    async def kill():
        for _ in range(3):
            await asyncio.sleep(dice.uniform(0.1, 0.5))
            double_process.kill()
            await asyncio.sleep(dice.uniform(0.0, 0.3))
            await double_process.start()

    async with engine_on(tmp_path, double_process.url, calls, keys=keys) as engine:
        killing = asyncio.create_task(kill())
        submitting = []
        for number in range(REQUESTS):
            submitting.append(asyncio.create_task(submit(engine, number)))
            await asyncio.sleep(0.005)
        await asyncio.gather(*submitting, killing)
        async with asyncio.timeout(150):
            while len(await engine.find(status="sent", limit=1000)) < REQUESTS:
                await asyncio.sleep(0.2)
        assert len({*accepted.values()}) == REQUESTS
        assert len(await engine.find(limit=1000)) == REQUESTS
    # An attempt whose outcome could not be recorded is repeated under the same key, by which the
    # receiver recognises it.
    assert sorted(number for number, _ in keys) == [*range(REQUESTS)]
