"""Jobs of another program that cannot be used, and queues that cannot: each a clear error, and
everything else goes on. Written with plain commands, as any client of Redis could.
"""

import asyncio

import pytest

from gesta import Done
from gesta.ports.foreign_jobs import Failed, PutBack
from gesta.projector import job_relay
from gesta.stores.redis.keys import QueueKeys
from tests.processes.member import Log
from tests.processes.members import PATIENCE_SECONDS
from tests.stores.redis.shop import Order, engine_on

FLOW = "shop.order"
ID = "018f0000-0000-7000-8000-000000000001"


async def put(raw, job_id, data, flow=FLOW):
    """The smallest producer that BullMQ's workers accept."""
    keys = QueueKeys(raw.address.prefix, flow)
    fields = {"name": "execute", "data": data, "opts": "{}", "timestamp": 1, "delay": 0}
    await raw.command("HSET", keys[job_id], *(part for pair in fields.items() for part in pair))
    await raw.command("LPUSH", keys["wait"], job_id)
    await raw.command("ZADD", keys["marker"], 0, "0")


async def answered(raw, job_id, field):
    key = QueueKeys(raw.address.prefix, FLOW)[job_id]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (found := await raw.command("HGET", key, field)) is None:
            await asyncio.sleep(0.05)
    return found


async def failure(raw, job_id):
    return await answered(raw, job_id, "failedReason")


async def test_each_bad_job_fails_with_what_is_wrong_with_it(tmp_path, redis_url, raw):
    wrong = {
        "not json": (b"{", "data: is not valid JSON"),
        "bytes": (b'{"tenant":"\xff"}', "data: is not valid JSON"),
        "list": (b"[]", "data: must be a JSON object"),
        "deep": (b"[" * 50_000 + b"]" * 50_000, "data: is nested too deeply"),
        "large": (b'"' + b"x" * 10_000_000 + b'"', "data: 10000002 bytes are too large for a job"),
        "no uuid": (b'{"tenant":"acme","requestId":"7"}', "job data of shop.order: "),
        "tenant": (f'{{"tenant":"a b","requestId":"{ID}"}}'.encode(), "job data of shop.order: "),
        "extra": (
            f'{{"tenant":"acme","requestId":"{ID}","token":"t-1"}}'.encode(),
            "job data of shop.order: contains more than a pointer",
        ),
    }
    async with engine_on(tmp_path, redis_url, Log(tmp_path), work=True) as engine:
        for name, (data, _) in wrong.items():
            await put(raw, name, data)
        request = await engine.submit(Order(1))
        assert isinstance(await request.outcome(PATIENCE_SECONDS), Done)
        for name, (_, reason) in wrong.items():
            assert (await failure(raw, name)).startswith(reason), name
    kept = await raw.command("HGET", QueueKeys(raw.address.prefix, FLOW)["extra"], "data")
    assert "t-1" not in kept  # S0-28


@pytest.mark.parametrize("error", ["version", "type"])
async def test_a_queue_that_cannot_be_used_keeps_no_job_of_another_from_its_answer(
    tmp_path, redis_url, raw, caplog, error
):
    keys = QueueKeys(raw.address.prefix, "shop.parcel")
    if error == "version":
        await raw.command("HSET", keys["meta"], "version", "bullmq:7.0.0")
    else:
        await raw.command("SET", keys["wait"], "theirs")
    async with engine_on(tmp_path, redis_url, Log(tmp_path), work=True) as engine:
        request = await engine.submit(Order(1))
        await put(raw, "good", f'{{"tenant":"default","requestId":"{request.id}"}}')
        await put(raw, "bad", "[]")
        assert await failure(raw, "bad") == "data: must be a JSON object"
        answer = await answered(raw, "good", "returnvalue")
    assert answer == '{"status":"completed","providerId":"1","attempt":1}'
    expected = {"version": "shop.parcel belongs to bullmq:7", "type": "is a string, not a list"}
    assert expected[error] in caplog.text


async def test_an_id_with_blanks_is_leased_extended_and_recovered(ports, raw):
    await put(raw, "order 7 of ana", "{}")
    (job,) = await ports.foreign_jobs.take("t", {FLOW: 5}, 0.3)
    assert await ports.queue.extend("t", 0.3)
    lock = QueueKeys(raw.address.prefix, FLOW).lock(job.id)
    assert await raw.command("GET", lock) == "t"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (taken := await ports.foreign_jobs.take("u", {FLOW: 5}, 10)):
            await asyncio.sleep(0.05)
    assert [(one.id, one.starts) for one in taken] == [("order 7 of ana", 2)]
    assert await ports.foreign_jobs.settle([Failed(job, "late")]) == ["lost"]  # S0-6
    assert await ports.foreign_jobs.settle([PutBack(taken[0])]) == ["done"]


async def test_a_user_that_loses_a_permission_stops_no_submit(
    tmp_path, server, monkeypatch, caplog
):
    monkeypatch.setattr(job_relay, "POLL_SECONDS", 0.1)
    server.command("ACL", "SETUSER", "mailer", "on", ">right", "~*", "+@all")
    url = f"redis://mailer:right@127.0.0.1:{server.port}"
    async with engine_on(tmp_path, url, Log(tmp_path), work=True) as engine:
        assert isinstance(await (await engine.submit(Order(1))).outcome(PATIENCE_SECONDS), Done)
        server.command("ACL", "SETUSER", "mailer", "-@scripting")
        request = await engine.submit(Order(2))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "lacks a permission" not in caplog.text:
                await asyncio.sleep(0.05)
        assert "ACL SETUSER" in caplog.text
        assert await request.status() == "queued"
        server.command("ACL", "SETUSER", "mailer", "+@scripting")
        assert isinstance(await request.outcome(PATIENCE_SECONDS), Done)


@pytest.mark.parametrize("count", [1, 100])
async def test_a_call_carries_many_jobs_of_another_program(tmp_path, redis_url, raw, count):
    async def scripts():
        stats = await raw.command("INFO", "commandstats")
        return stats["cmdstat_evalsha"]["calls"]

    async with engine_on(tmp_path, redis_url, work=False) as engine:
        request = await engine.submit(Order(1))
        await request.cancel()
        pointer = f'{{"tenant":"default","requestId":"{request.id}"}}'
        adoption = engine.pipeline.adoption
        assert adoption is not None
        before = 0
        # The first one loads the scripts.
        for names in (["first"], range(count)):
            for name in names:
                await put(raw, f"bad {name}", "[]")
                await put(raw, f"good {name}", pointer)
            before = await scripts()
            while await adoption.step():
                pass
        spent = await scripts() - before
        for n in range(count):
            assert await answered(raw, f"bad {n}", "failedReason")
            assert await answered(raw, f"good {n}", "failedReason") == "cancelled"
    # Each page takes one call to lease, one for the refused and one for the ended; the last page
    # is empty.
    assert spent <= 3 * (2 * count // 100 + 1) + 1
