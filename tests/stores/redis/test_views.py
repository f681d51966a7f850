"""Views in a real Valkey server: the literal snapshot, and what happens when it is lost."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import redis

from gesta import Done, Engine, Payload, flow
from gesta.domain.state import State
from gesta.engine.process_roles import Work
from gesta.errors import StoreError
from gesta.ports.checkpoints import Move
from gesta.ports.read_model import View, key_of
from gesta.projector import view_writer
from gesta.requests.loader import Loader
from gesta.runtime.clock import ManualRuntime, SystemRuntime
from gesta.runtime.settings import load
from gesta.stores.redis import open_views
from gesta.stores.redis.connection import script
from gesta.stores.redis.keys import slot_of
from gesta.stores.redis.read_model import DISPATCHED_KEPT_MS
from gesta.testing.contracts.samples import fresh_view
from gesta.testing.valkey_server import ValkeyCluster, ValkeyServer

ID = "019a9c2e-0000-7000-8000-000000000001"


class Note(Payload, frozen=True):
    number: int


def client_of(server):
    return redis.Redis(port=server.port, decode_responses=True)


@pytest.fixture
async def valkey():
    async with ValkeyServer() as server:
        yield server


@asynccontextmanager
async def opened(server):
    views = await open_views(server.url, SystemRuntime())
    yield views.read_model
    await views.close()


def view_of(flow, payload, **state):
    values: dict[str, Any] = {
        "status": "queued",
        "version": 1,
        "created_at": 1000,
        "updated_at": 1000,
    } | state
    return View(State(ID, "acme", flow, **values), msgspec.json.encode(payload))


async def test_a_snapshot_of_slack_has_the_fields_of_document_000(valkey):
    payload = {"workspaceCode": "w", "templateCode": "t", "channelCode": "c", "data": {"n": 1}}
    async with opened(valkey) as views:
        await views.save([view_of("notification.slack", payload, dispatch_version=1)], [])
        newer = view_of(
            "notification.slack", payload, status="sent", version=2, updated_at=2000, phase="ended"
        )
        await views.save([newer], [])
    stored = client_of(valkey)
    key = f"notification.slack:v1:{{acme}}:message-request:{ID}"  # R0-10
    fields = stored.hgetall(key)
    assert {name: fields[name] for name in fields.keys() - {"state", "payload"}} == {
        "id": ID,
        "tenant": "acme",
        "workspaceCode": "w",
        "templateCode": "t",
        "channelCode": "c",
        "data": '{"n":1}',
        "status": "sent",
        "version": "2",
        "createdAt": "1000",
        "updatedAt": "2000",
        "lastStreamRevision": "1",
    }  # R0-11
    index = "notification.slack:v1:{acme}:idx:message-request"
    assert stored.zrange(f"{index}:updated", 0, -1, withscores=True) == [(ID, 2000.0)]  # R0-12
    assert stored.smembers(f"{index}:by-status:sent") == {ID}  # R0-13
    assert not stored.exists(f"{index}:by-status:queued")  # R0-13
    assert stored.get(f"{key}:dispatched") == "1"  # R0-14
    assert 0 < stored.pttl(f"{key}:dispatched") <= 7 * 24 * 3600 * 1000


async def test_a_snapshot_of_another_flow_has_the_keys_of_document_001(valkey):
    async with opened(valkey) as views:
        await views.save([view_of("notification.email", {"to": "x"}, dispatch_version=1)], [])
    stored = client_of(valkey)
    base = "notification.email:v1:{acme}:"
    assert stored.hget(f"{base}request:{ID}", "status") == "queued"  # R1-12
    assert stored.zscore(f"{base}idx:request:updated", ID) == 1000.0  # R1-13
    assert stored.sismember(f"{base}idx:request:by-status:queued", ID)  # R1-14
    assert stored.get(f"{base}request:{ID}:dispatched") == "1"  # R1-15


async def test_a_server_that_evicts_keys_is_refused():
    async with ValkeyServer("--maxmemory-policy", "allkeys-lru") as server:
        with pytest.raises(StoreError, match="noeviction"):
            await open_views(server.url, SystemRuntime())


async def test_a_key_of_another_program_is_named(valkey):
    client_of(valkey).set(f"notification.slack:v1:{{acme}}:message-request:{ID}", "not ours")
    async with opened(valkey) as views:
        other = view_of("notification.email", {"to": "x"})
        with pytest.raises(StoreError, match="not gesta's"):
            await views.save([view_of("notification.slack", {}), other], [])
        found = await views.get([("notification.email", "acme", ID)])
    assert [*found.values()] == [other]


async def until(condition, seconds=30):
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def engine_on(tmp_path, url, calls, **options):
    @flow("test.note", on_unknown="resend")
    async def note(payload: Note, attempt) -> Done:
        calls[payload.number] += 1
        return Done(id=str(payload.number))

    settings = load({"url": f"sqlite:///{tmp_path}/gesta.db", "views_url": url, **options})
    async with Engine(flows=[note], settings=settings) as engine:
        yield engine


class NoViews:
    async def get(self, keys):
        return {}


async def assert_views_equal_fold(engine, count):
    """Every view is what its events come to."""
    stores = engine.pipeline.environment.stores
    keys = [key_of(one.state) for one in await engine.find(limit=1000)]
    assert len(keys) == count
    folded, _ = await Loader(stores.events, NoViews()).load(keys)  # type: ignore[arg-type]
    assert await stores.read_model.get(keys) == folded


async def completed(engine):
    return len(await engine.find(status="completed", limit=1000))


async def test_views_that_flushall_removed_come_back_and_no_request_is_executed_again(
    tmp_path, valkey
):
    calls: Counter[int] = Counter()
    async with engine_on(tmp_path, valkey.url, calls) as engine:
        ended = await engine.submit_many([Note(number=n) for n in range(50)])
        for request in ended:
            await request.outcome(timeout=20)
        later = await engine.submit(
            Note(number=99), deliver_at=datetime.now(UTC) + timedelta(seconds=2)
        )
        client_of(valkey).flushall()

        async def all_back():
            return await completed(engine) >= 50

        await until(all_back)
        assert await later.outcome(timeout=20) == Done("99")
        await engine.submit(Note(number=100))

        async def all_there():
            return await completed(engine) == 52

        await until(all_there)
    assert calls == Counter([*range(50), 99, 100])  # K-11: each was executed once


async def test_a_restarted_server_without_its_data_gets_all_views_again(tmp_path, valkey):
    calls: Counter[int] = Counter()
    async with engine_on(tmp_path, valkey.url, calls) as engine:
        for n in range(20):
            await engine.submit(Note(number=n))

        async def all_there():
            return await completed(engine) == 20

        await until(all_there)
        valkey.kill()
        silent = await engine.submit(Note(number=20))
        await valkey.start()

        async def all_back():
            return await completed(engine) == 21

        await until(all_back)
        assert await silent.outcome(timeout=20) == Done("20")
    assert calls == Counter(range(21))  # K-10


@pytest.mark.slow
async def test_a_failover_of_the_cluster_costs_no_view_and_repeats_no_effect(tmp_path):
    calls: Counter[int] = Counter()
    async with ValkeyCluster() as cluster, engine_on(tmp_path, cluster.url, calls) as engine:
        for request in await engine.submit_many([Note(number=n) for n in range(30)]):
            await request.outcome(timeout=30)

        async def all_there():
            return await completed(engine) == 30

        await until(all_there)
        slot = slot_of("test.note:v1:{default}:request:any")
        primary = cluster.servers[0 if slot <= 5_460 else 1 if slot <= 10_922 else 2]
        primary.kill()
        later = [await engine.submit(Note(number=n)) for n in range(30, 35)]
        # The replica may have lost the last views: the projector sees its older position.

        async def all_back():
            try:
                return await completed(engine) == 35
            except StoreError:
                return False

        await until(all_back, seconds=60)
        assert [await one.outcome(timeout=20) for one in later] == [
            Done(str(n)) for n in range(30, 35)
        ]
        await assert_views_equal_fold(engine, 35)
    assert calls == Counter(range(35))  # K-10


async def test_the_snapshot_shows_the_final_status_and_the_worker_reads_it(tmp_path, valkey):
    executed: list[int] = []
    stored = client_of(valkey)

    @flow("notification.slack", on_unknown="resend")
    async def send(payload: Note, attempt) -> Done:
        executed.append(payload.number)
        return Done(id="1731.1")

    settings = load({"url": f"sqlite:///{tmp_path}/gesta.db", "views_url": valkey.url})
    projector = Work(frozenset({"projector"}))
    async with Engine(flows=[send], settings=settings, work=projector) as engine:
        request = await engine.submit(Note(number=7), tenant="acme")
        key = f"notification.slack:v1:{{acme}}:message-request:{request.id}"

        async def queued():
            return stored.hget(key, "status") == "queued"

        await until(queued)
    # Only a worker that loads the snapshot can come to execute this.
    stored.hset(key, "payload", '{"number":8}')
    assert executed == []
    async with Engine(flows=[send], settings=settings):

        async def sent():
            return stored.hget(key, "status") == "sent"  # R0-30

        await until(sent)
    assert executed == [8]  # R1-22


WHOLE = {"workspaceCode": "w", "templateCode": "t", "channelCode": "c", "data": {"n": 1}}


async def test_a_view_whose_first_version_was_lost_is_written_whole(valkey):
    first = view_of("notification.slack", WHOLE)
    second = view_of("notification.slack", WHOLE, version=2, updated_at=2000)
    stored = client_of(valkey)
    key = f"notification.slack:v1:{{acme}}:message-request:{ID}"
    async with opened(valkey) as views:
        await views.save([first], [])
        await views.save([second], [])
        expected = stored.hgetall(key)
        assert expected["data"] == '{"n":1}'
    stored.flushall()
    async with opened(valkey) as views:
        await views.save([first], [])
        stored.flushall()
        await views.save([second], [])
    assert stored.hgetall(key) == expected
    assert stored.smembers("notification.slack:v1:{acme}:idx:message-request:by-status:queued") == {
        ID
    }


async def test_a_view_that_another_process_changed_meanwhile_is_written_whole(valkey):
    views_of = [view_of("notification.slack", WHOLE, version=n, updated_at=n) for n in range(1, 5)]
    other = view_of("notification.slack", {**WHOLE, "recipient": "r"}, version=2, updated_at=2)
    stored = client_of(valkey)
    key = f"notification.slack:v1:{{acme}}:message-request:{ID}"
    async with opened(valkey) as views, opened(valkey) as others:
        await views.save([views_of[0]], [])
        await others.save([other], [])
        await views.save([views_of[2]], [])
        assert stored.hget(key, "version") == "3"
        assert not stored.hexists(key, "recipient")
        await others.save([other], [])
        assert stored.hget(key, "version") == "3"
        assert not stored.hexists(key, "recipient")


async def test_an_event_writes_only_the_fields_that_it_changes(valkey):
    views_of = [view_of("notification.slack", WHOLE, version=n, updated_at=n) for n in (1, 2)]
    stored = client_of(valkey)
    async with opened(valkey) as views:
        await views.save([views_of[0]], [])
        stored.hset(f"notification.slack:v1:{{acme}}:message-request:{ID}", "data", "untouched")
        await views.save([views_of[1]], [])
    found = stored.hgetall(f"notification.slack:v1:{{acme}}:message-request:{ID}")
    assert found["version"] == "2"
    assert found["data"] == "untouched"


WRONG = {
    "snapshot": f"notification.slack:v1:{{acme}}:message-request:{ID}",
    "dispatched mark": f"notification.slack:v1:{{acme}}:message-request:{ID}:dispatched",
    "updated": "notification.slack:v1:{acme}:idx:message-request:updated",
    "by status": "notification.slack:v1:{acme}:idx:message-request:by-status:queued",
    "by id": "notification.slack:v1:{acme}:idx:message-request:by-id",
}


@pytest.mark.parametrize("key", WRONG.values(), ids=[*WRONG])
async def test_a_key_of_another_type_is_an_error_and_the_other_flows_are_saved(valkey, key):
    stored = client_of(valkey)
    stored.rpush(key, "theirs")
    ours = view_of("notification.slack", {}, dispatch_version=1)
    other = view_of("notification.email", {"to": "x"})
    async with opened(valkey) as views:
        with pytest.raises(StoreError, match=r"notification\.slack.*acme.*WRONGTYPE"):
            await views.save([ours, other], [])
        assert [*(await views.get([key_of(other.state)])).values()] == [other]
        assert stored.lrange(key, 0, -1) == ["theirs"]
        stored.delete(key)
        await views.save([ours, other], [])
        assert [*(await views.get([key_of(ours.state)])).values()] == [ours]


SWEEPER = [f"gesta:v1:{{views-0}}:{name}" for name in ("sweep", "open", "undecided", "versions")]


@pytest.mark.parametrize(
    ("state", "indexed"),
    [
        ({"expires_at": 9000}, [1, 1, 0, 1]),
        ({"status": "unknown", "phase": "unknown"}, [0, 0, 1, 1]),
    ],
    ids=["queued", "undecided"],
)
async def test_a_request_that_has_ended_is_in_no_index_of_the_sweeper(valkey, state, indexed):
    ended = view_of("notification.slack", {}, version=2, status="sent", phase="ended")
    stored = client_of(valkey)
    async with opened(valkey) as views:
        await views.save([view_of("notification.slack", {}, **state)], [])
        assert [stored.exists(key) for key in SWEEPER] == indexed
        await views.save([ended], [])
        assert not stored.exists(*SWEEPER)


@pytest.mark.parametrize("was_open", [True, False])
async def test_the_dispatched_mark_of_a_request_expires_once_it_has_ended(valkey, was_open):
    opened_view = view_of("notification.slack", {}, dispatch_version=1)
    state = {"status": "sent", "phase": "ended", "attempts": 1, "dispatch_version": 1}
    ended, mark = view_of("notification.slack", {}, version=2, **state), WRONG["dispatched mark"]
    stored = client_of(valkey)
    async with opened(valkey) as views:
        if was_open:
            await views.save([opened_view], [])
            assert (stored.get(mark), stored.pttl(mark)) == ("1", -1)
        await views.save([ended], [])
    assert stored.get(mark) == "1"
    assert 0 < stored.pttl(mark) <= DISPATCHED_KEPT_MS


@pytest.mark.parametrize("key", SWEEPER)
async def test_a_key_of_another_type_keeps_a_request_out_of_all_indexes(valkey, key):
    stored = client_of(valkey)
    stored.rpush(key, "theirs")
    async with opened(valkey) as views:
        with pytest.raises(StoreError, match=f"{re.escape(key)}.* a list"):
            await views.save([view_of("notification.slack", {}, expires_at=9000)], [])
    assert [one for one in SWEEPER if stored.exists(one)] == [key]


async def test_the_error_of_a_user_that_may_not_run_scripts_names_what_to_grant(valkey):
    valkey.command("ACL", "SETUSER", "reader", "on", ">right", "~*", "+@all", "-@scripting")
    views = await open_views(f"redis://reader:right@127.0.0.1:{valkey.port}", SystemRuntime())
    with pytest.raises(StoreError, match=r"lacks a permission.*ACL SETUSER"):
        await views.read_model.save([view_of("notification.email", {})], [])
    valkey.command("ACL", "SETUSER", "reader", "+@scripting")
    await views.read_model.save([view_of("notification.email", {})], [])
    await views.close()


async def test_views_that_may_not_be_written_for_a_while_stop_no_submit(tmp_path, valkey, caplog):
    calls: Counter[int] = Counter()
    valkey.command("ACL", "SETUSER", "mailer", "on", ">right", "~*", "+@all")
    url = f"redis://mailer:right@127.0.0.1:{valkey.port}"
    async with engine_on(tmp_path, url, calls) as engine:
        await (await engine.submit(Note(number=0))).outcome(timeout=20)
        valkey.command("ACL", "SETUSER", "mailer", "-@scripting")
        refused = await engine.submit(Note(number=1))

        async def is_logged():
            return "lacks a permission" in caplog.text

        await until(is_logged)
        valkey.command("ACL", "SETUSER", "mailer", "+@scripting")
        assert await refused.outcome(timeout=20) == Done("1")
    assert calls == Counter(range(2))


async def lose(server, synced, views):
    """The machine dies with its last second, and answers again."""
    server.kill()
    server.restore_data(synced)
    await server.start()
    # A connection that died with it may be an error once; the next call has a new one.
    with suppress(StoreError):
        await views.positions()


@pytest.mark.parametrize("missing", [[], ["save_views"], ["move_positions"]])
async def test_no_position_moves_over_views_that_the_server_lost_before_it(
    tmp_path, monkeypatch, missing
):
    """The process stood still between the views and their position. The position moved, and a
    request whose view was lost stayed as it was for ever.
    """
    older, newer = (view_of("a.b", {"n": 1}, version=version) for version in (1, 2))
    async with ValkeyServer(durable=True) as server, opened(server) as views:
        assert await views.save([older], [], [Move("projector/0", 0, 1)])
        synced = tmp_path / "synced"
        await server.copy_data(synced)
        move = views._move

        async def late(*args):
            await lose(server, synced, views)
            for name in missing:
                client_of(server).script_load(script(name).text)
            return await move(*args)

        monkeypatch.setattr(views, "_move", late)
        moved = [Move("projector/0", 1, 2)]
        assert not await views.save([newer], [], moved)
        assert await views.positions() == {"projector/0": 1}
        monkeypatch.undo()
        assert await views.save([newer], [], moved)
        assert (await views.get([key_of(newer.state)]))[key_of(newer.state)].state.version == 2
        assert await views.positions() == {"projector/0": 2}


async def test_no_position_moves_over_views_that_were_lost_while_an_older_request_was_held(
    tmp_path, monkeypatch
):
    """The views of requests that had ended were written while an open one before them waited for
    its end. The server lost them, and the position moved over them with that one.
    """
    monkeypatch.setattr(view_writer, "BUSY", 1)
    runtime = ManualRuntime()
    waits, ended, last = (fresh_view(status=status) for status in ("queued", "sent", "sent"))
    async with ValkeyServer(durable=True) as server, opened(server) as views:
        assert await views.save([], [], [Move("projector/0", 0, 1)])
        synced = tmp_path / "synced"
        await server.copy_data(synced)

        async def write(saved, _, quarantined, moves):
            return await views.save(saved, quarantined, moves)

        heard: list[View] = []
        writer = view_writer.ViewWriter(write, heard.extend, runtime)
        await writer.add(view_writer.Fold([waits, ended], [2, 3], [Move("projector/0", 1, 3)], 3))
        while ended not in heard:
            await asyncio.sleep(0.01)
        assert await views.positions() == {"projector/0": 1}
        await lose(server, synced, views)
        await writer.add(view_writer.Fold([last], [4], [Move("projector/0", 3, 4)], 4))
        assert not await writer.flush()
        assert await views.positions() == {"projector/0": 1}
        # The projector folds again from there.
        again = [waits, ended, last]
        await writer.add(view_writer.Fold(again, [2, 3, 4], [Move("projector/0", 1, 4)], 4))
        assert await writer.flush()
        assert await views.positions() == {"projector/0": 4}
        assert len(await views.get([key_of(one.state) for one in again])) == 3


async def test_no_position_moves_over_views_that_were_lost_after_they_were_written_whole(
    tmp_path, monkeypatch
):
    older, newer = (view_of("a.b", {"n": 1}, version=version) for version in (1, 2))
    synced = tmp_path / "synced"
    async with ValkeyServer(durable=True) as server, opened(server) as views:
        assert await views.save([older], [], [Move("projector/0", 0, 1)])
        client_of(server).delete(f"a.b:v1:{{acme}}:request:{ID}")
        write, move = views._write, views._move

        async def copied(*args):
            answer = await write(*args)
            if not synced.exists():
                await server.copy_data(synced)
            return answer

        async def late(*args):
            await lose(server, synced, views)
            return await move(*args)

        monkeypatch.setattr(views, "_write", copied)
        monkeypatch.setattr(views, "_move", late)
        assert not await views.save([newer], [], [Move("projector/0", 1, 2)])
        assert await views.positions() == {"projector/0": 1}


@pytest.mark.parametrize("known", ["save_views", "index_views"])
async def test_no_mark_follows_a_view_that_is_written_after_it_or_not_at_all(valkey, known):
    """Where the server has lost a script, the views of one batch are written before its marks. It
    may also have lost what was written with the other one.
    """
    other = view_of("a.b", {"n": 1})
    async with opened(valkey) as views:
        await views.save([other], [], [Move("projector/0", 0, 1)])
        client_of(valkey).script_flush()
        client_of(valkey).script_load(script(known).text)
        seen = []
        send = views._redis._send

        async def noted(calls):
            seen.append([one.script.name for one in calls])
            return await send(calls)

        views._redis._send = noted
        later = view_of("a.b", {"n": 1}, version=2)
        assert await views.save([later], [], [Move("projector/0", 1, 2)])
    assert seen[:2] == [["save_views", "index_views"]] * 2
