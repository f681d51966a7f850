"""Servers, users and keys that a queue cannot work with: each a clear error; the rest goes on."""

import pytest

from gesta.errors import QueueRefused, StoreError
from gesta.ports.job_queue import Ack
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.stores.redis.keys import QueueKeys
from gesta.testing.contracts.samples import fresh_job


async def test_a_server_that_may_delete_keys_is_refused(server):
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreError, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
        await open_queue(server.url, SystemRuntime())


async def test_a_server_that_does_not_answer_is_named(server):
    server.kill()
    with pytest.raises(StoreError, match=rf"127.0.0.1:{server.port}.*Is it running"):
        await open_queue(server.url, SystemRuntime())


async def test_a_wrong_password_is_an_error_that_does_not_show_it(server):
    server.command("ACL", "SETUSER", "mailer", "on", ">right", "~*", "+@all")
    with pytest.raises(StoreError, match="user and password") as refused:
        await open_queue(f"redis://mailer:wrong@127.0.0.1:{server.port}", SystemRuntime())
    assert "wrong" not in str(refused.value)


async def test_a_missing_permission_error_names_what_to_grant(server):
    server.command("ACL", "SETUSER", "reader", "on", ">right", "~*", "+@all", "-@scripting")
    with pytest.raises(StoreError, match=r"lacks a permission.*ACL SETUSER"):
        await open_queue(f"redis://reader:right@127.0.0.1:{server.port}", SystemRuntime())


async def test_the_permissions_that_the_error_names_are_enough(server):
    granted = "~bull:* ~*:v1:* +@all -@admin -@dangerous +info".split()
    server.command("ACL", "SETUSER", "mailer", "on", ">right", *granted)
    ports = await open_queue(f"redis://mailer:right@127.0.0.1:{server.port}", SystemRuntime())
    try:
        job = fresh_job("a.b")
        await ports.queue.put([job])
        await ports.queue.take("t", {"a.b": 1}, 10, durable=False)
        assert await ports.queue.extend("t", 10)
        assert await ports.queue.settle([Ack(job.id, "t")]) == ["done"]
    finally:
        await ports.close()


@pytest.mark.parametrize("name", ["wait", "prioritized", "delayed", "meta", "events", "pc"])
async def test_a_key_of_another_program_is_named_and_nothing_is_written(ports, raw, name):
    key = QueueKeys(raw.address.prefix, "a.b")[name]
    await raw.command(*({"pc": ("HSET", key, "x", "1")}.get(name) or ("SET", key, "theirs")))
    job, other = fresh_job("a.b"), fresh_job("c.d")
    with pytest.raises(StoreError, match=rf"{key} is a (string|hash), not a .*prefix"):
        await ports.queue.put([job])
    assert await ports.queue.find([job.id]) == set()
    assert await raw.command("EXISTS", QueueKeys(raw.address.prefix, "a.b")[job.id]) == 0
    assert await ports.queue.put([other]) == [True]


@pytest.mark.parametrize("version", ["bullmq:7.0.0", "bullmq:4.18.2", "resque:1.0.0"])
async def test_a_queue_of_another_major_is_refused(ports, raw, version):
    await raw.command("HSET", QueueKeys(raw.address.prefix, "a.b")["meta"], "version", version)
    with pytest.raises(StoreError, match=rf"queue a.b belongs to {version}.*5 and 6"):
        await ports.queue.put([fresh_job("a.b")])
    with pytest.raises(StoreError, match="layout"):
        await ports.queue.take("t", {"a.b": 1}, 10, durable=False)
    assert await ports.queue.put([fresh_job("c.d")]) == [True]


async def test_a_queue_that_cannot_be_used_stops_no_other(ports, raw):
    """Jobs of the others are put and taken; the error names the jobs that were not put."""
    meta = QueueKeys(raw.address.prefix, "a.b")["meta"]
    await raw.command("HSET", meta, "version", "bullmq:7.0.0")
    bad, good = [fresh_job("a.b") for _ in range(3)], [fresh_job("c.d") for _ in range(3)]
    mixed = [job for pair in zip(bad, good, strict=True) for job in pair]
    with pytest.raises(QueueRefused) as refused:
        await ports.queue.put(mixed)
    assert set(refused.value.job_ids) == {job.id for job in bad}
    leased, _ = await ports.queue.take("t", {"a.b": 5, "c.d": 5}, 10, durable=False)
    assert {one.job.id for one in leased} == {job.id for job in good}
    await raw.command("HSET", meta, "version", "bullmq:6.7.0")
    assert await ports.queue.put(mixed) == [True, False] * 3


@pytest.mark.parametrize("version", ["bullmq:5.81.5", "bullmq:6.7.0", "bullmq-pro:6.1.0"])
async def test_the_version_of_a_known_major_is_left_as_it_is(ports, raw, version):
    meta = QueueKeys(raw.address.prefix, "a.b")["meta"]
    await raw.command("HSET", meta, "version", version)
    await ports.queue.put([fresh_job("a.b")])
    assert await raw.command("HGET", meta, "version") == version


async def test_a_new_queue_gets_a_version_and_the_length_of_its_events(ports, raw):
    await ports.queue.put([fresh_job("a.b")])
    meta = await raw.command("HGETALL", QueueKeys(raw.address.prefix, "a.b")["meta"])
    assert meta == {"version": "bullmq:6.7.0", "opts.maxLenEvents": "10000"}


async def test_a_full_server_raises_a_store_error_that_names_the_cause(server):
    ports = await open_queue(server.url, SystemRuntime())
    try:
        server.command("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreError, match="no room left"):
            await ports.queue.put([fresh_job("a.b")])
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await ports.queue.put([fresh_job("a.b")]) == [True]
    finally:
        await ports.close()
