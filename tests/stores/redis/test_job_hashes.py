"""Jobs as Redis hashes: the exact layout, what other programs left there, one round trip."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gesta.domain.stored_job import JobError, JobStatus, job_at
from gesta.errors import BadSettings
from gesta.jobs.migration import migrate
from gesta.ports.job_store import Claim, Completion, Failing, Held, Update
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_jobs
from gesta.stores.redis.connection import Redis, address_of, script
from gesta.testing.harnesses.redis import SharedCluster

ID = "0a1b2c3d-0000-4000-8000-000000000001"
OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
WORKER = "0a0a0a0a-0000-4000-8000-000000000001"
NAME = "reports.build"
MADE_MS = 1_800_000_000_000
FIELDS = """Id Name Status Headers RouteParams QueryParams Payload Result Error RetryCount
MaxRetries RetryDelayUntil WorkerId CreatedAt StartedAt CompletedAt LastUpdatedAt""".split()


@pytest.fixture
async def raw(server):
    redis = Redis(address_of(server.url))
    yield redis
    await redis.close()


@pytest.fixture
async def jobs(server):
    ports = await open_jobs(server.url, SystemRuntime())
    yield ports.job_store
    await ports.close()


def job(job_id=ID, **more):
    return job_at(MADE_MS, id=job_id, name=NAME, **more)


async def claim(store, limit=1):
    answer = await store.claim(Claim(worker_id=WORKER, names=(NAME,), limit=limit))
    return answer.value


async def test_a_job_is_a_hash_of_exactly_these_fields(jobs, raw):
    await jobs.create(
        [
            job(
                headers={"a": ["1", None]},
                route_params={"n": 7},
                query_params=[("q", ["1", "2"])],
                payload="p",
                error=JobError("C", "m"),
                status=JobStatus.SCHEDULED,
                retry_delay_until=datetime(2099, 1, 2, 3, 4, 5, 678900, tzinfo=UTC),
            )
        ]
    )
    assert await raw.command("TYPE", f"ae:job:{ID}") == "hash"  # R4-1
    found = await raw.command("HGETALL", f"ae:job:{ID}")
    assert set(found) == set(FIELDS)  # R4-2, R4-3
    assert found == {
        "Id": ID,
        "Name": "reports.build",
        "Status": "200",  # R4-2
        "Headers": '{"a":["1",null]}',
        "RouteParams": '{"n":7}',
        "QueryParams": '[{"key":"q","value":["1","2"]}]',
        "Payload": "p",
        "Result": "",
        "Error": '{"code":"C","message":"m"}',
        "RetryCount": "0",
        "MaxRetries": "3",
        "RetryDelayUntil": "2099-01-02T03:04:05.6789000Z",  # R4-3
        "WorkerId": "",  # S4-19: null is an empty text in this layout
        "CreatedAt": "2027-01-15T08:00:00.0000000+00:00",  # R4-3
        "StartedAt": "",
        "CompletedAt": "",
        "LastUpdatedAt": "2027-01-15T08:00:00.0000000+00:00",
    }
    # S4-3, S4-4: it waits in the queue for its time, in milliseconds.
    due = float(await raw.command("ZSCORE", "ae:jobs:queue", ID))
    assert due == 4_071_006_245_678


async def test_a_claimed_and_completed_hash_has_the_same_fields(jobs, raw):
    await jobs.create([job()])
    score = float(await raw.command("ZSCORE", "ae:jobs:queue", ID))  # R4-8
    now = SystemRuntime().now_ms()
    assert now - 60_000 < score <= now + 1  # S4-12: milliseconds
    (claimed,) = await claim(jobs)
    found = await raw.command("HGETALL", f"ae:job:{ID}")
    assert (found["Status"], found["WorkerId"]) == ("300", WORKER)  # R4-15
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}\+00:00", found["StartedAt"])
    assert await raw.command("ZSCORE", "ae:jobs:queue", ID) is None  # R4-15
    await jobs.complete([Completion(claimed.value.held, '{"n":1}')])
    found = await raw.command("HGETALL", f"ae:job:{ID}")
    assert (found["Status"], found["Result"], set(found)) == ("400", '{"n":1}', set(FIELDS))
    assert 604_000 < await raw.command("TTL", f"ae:job:{ID}") <= 604_800  # S4-23: seven days
    assert await raw.command("ZCARD", "ae:jobs:inprogress") == 0


async def test_layout_cluster_leaves_null_fields_out_and_keeps_one_slot(server, raw):
    ports = await open_jobs(f"{server.url}?layout=cluster", SystemRuntime())
    await ports.job_store.create([job(result="")])
    found = await raw.command("HGETALL", f"{{ae}}:job:{ID}")
    nulls = {"Error", "RetryDelayUntil", "WorkerId", "StartedAt", "CompletedAt"}
    assert set(found) == set(FIELDS) - nulls  # S4-19
    (read,) = await ports.job_store.get([ID])
    assert read.value is not None
    assert (read.value.result, read.value.error) == ("", None)  # S4-19: distinguished
    keys = await raw.command("KEYS", "*")
    assert all(key.startswith("{ae}:") for key in keys)  # S4-5
    await ports.close()


async def test_layout_shared_is_refused_on_a_cluster():
    with pytest.raises(BadSettings, match="layout=cluster"):  # S4-5
        await open_jobs(f"{await SharedCluster.url()}?layout=shared", SystemRuntime())


def test_no_script_takes_a_key_from_its_arguments():
    names = "create get update claim complete fail reschedule release heartbeat cancel reap migrate"
    for name in names.split():
        text = script(f"job_{name}").text
        # S4-5: every key is one of KEYS or begins with one.
        assert not re.search(r"call\('\w+', ARGV", text), name
        assert "'ae:" not in text, name


async def test_a_claim_is_one_round_trip_also_for_many(jobs, raw):
    await jobs.create([job(f"0a1b2c3d-0000-4000-8000-{n:012d}") for n in range(1, 41)])
    await claim(jobs)  # loads the script
    before = await _commands(raw)
    assert len(await claim(jobs, 39)) == 39
    after = await _commands(raw)
    # R4-13: one EVALSHA, and our own two INFO.
    assert {name: after[name] - before.get(name, 0) for name in ("evalsha", "eval", "hgetall")} == {
        "evalsha": 1,
        "eval": 0,
        "hgetall": 39,  # inside the script
    }


async def _commands(raw):
    text = await raw.command("INFO", "commandstats")
    if isinstance(text, dict):
        found = {name.removeprefix("cmdstat_"): one["calls"] for name, one in text.items()}
    else:
        found = {m[1]: int(m[2]) for m in re.finditer(r"cmdstat_(\w+):calls=(\d+)", text)}
    return {"eval": 0, "hgetall": 0, **found}


async def test_ids_that_are_no_waiting_jobs_do_not_block_the_queue(jobs, raw):
    await raw.command("ZADD", "ae:jobs:queue", 1, OTHER, 2, "no guid", 3, "")
    await jobs.create([job(status=JobStatus.COMPLETED)])
    await raw.command("ZADD", "ae:jobs:queue", 4, ID)
    third = "0a1b2c3d-0000-4000-8000-000000000003"
    await jobs.create([job(third)])
    (claimed,) = await claim(jobs)
    assert claimed.value.job.id == third  # S4-10
    assert await raw.command("ZCARD", "ae:jobs:queue") == 0  # S4-10: removed


async def test_a_lost_script_is_loaded_again(jobs, raw):
    await jobs.create([job()])
    await raw.command("SCRIPT FLUSH")
    assert (await claim(jobs))[0].is_success  # S4-15


@pytest.mark.parametrize("kind", ["text", "list"])
async def test_a_key_of_another_type_is_reported_and_not_touched(jobs, raw, kind):
    key = f"ae:job:{ID}"
    await (raw.command("SET", key, "x") if kind == "text" else raw.command("RPUSH", key, "x"))
    before = await raw.command("DUMP", key) if kind == "list" else await raw.command("GET", key)
    (read,) = await jobs.get([ID])
    assert read.code == "DESERIALIZATION_ERROR"  # R4-10, S4-18
    (created,) = await jobs.create([job()])
    assert created.code == "JOB_CREATE_FAILED"
    (updated,) = await jobs.update([Update(job())])
    assert updated.code == "JOB_STORE_ERROR"
    (taken,) = await jobs.claim_by_id([ID], Claim(worker_id=WORKER))
    assert taken.code == "JOB_CONSTRUCTION_ERROR"
    assert [one.code for one in await jobs.cancel([ID])] == ["JOB_NOT_FOUND"]
    after = await raw.command("DUMP", key) if kind == "list" else await raw.command("GET", key)
    assert after == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Status", "many"),
        ("Headers", "{"),
        ("QueryParams", '{"a": 1}'),
        ("Error", "plain text"),
        ("CreatedAt", "yesterday"),
        ("Payload", b"\xff\xfe"),
        ("Id", "7"),
        ("RetryCount", "three"),
        ("Headers", "[" * 100_000),
        ("Error", '{"code":' * 100_000),
        # Before the first year, and after the last one, in UTC.
        ("CreatedAt", "0001-01-01T00:00:00+05:00"),
        ("CreatedAt", "9999-12-31T23:59:59-05:00"),
    ],
)
async def test_an_unreadable_hash_is_reported_and_the_others_are_read(jobs, raw, field, value):
    await jobs.create([job(), job(OTHER)])
    await raw.command("HSET", f"ae:job:{ID}", field, value)
    bad, good = await jobs.get([ID, OTHER])
    assert (bad.code, good.is_success) == ("DESERIALIZATION_ERROR", True)  # R4-10
    results = [one.code for one in await claim(jobs, 2)]
    if field == "Status":
        assert results == [""]
    else:
        # R4-16, S4-1: the job ends, and blocks no other job.
        assert sorted(results) == ["", "JOB_CONSTRUCTION_ERROR"]
        assert await raw.command("HGET", f"ae:job:{ID}", "Status") == "500"


async def test_a_hash_without_optional_fields_is_read_with_defaults(jobs, raw):
    at = "2026-01-02T03:04:05.1234567+02:00"
    await raw.command("HSET", f"ae:job:{ID}", "Id", ID.upper(), "Name", NAME, "CreatedAt", at)
    (read,) = await jobs.get([ID])
    # S4-18, S4-20: defaults, and UTC.
    assert read.value.created_at == datetime(2026, 1, 2, 1, 4, 5, 123456, tzinfo=UTC)
    assert (read.value.status, read.value.headers, read.value.error) == (100, {}, None)


async def test_a_job_of_a_dotnet_service_is_claimed(jobs, raw):
    await raw.command(
        *("HSET", f"ae:job:{ID}", "Id", ID, "Name", NAME, "Status", "100", "Payload", "{}"),
        *("Headers", '{"Accept":["*/*"]}', "RouteParams", "{}"),
        *("QueryParams", '[{"Key":"q","Value":["1"]}]', "Result", "", "Error", ""),
        *("RetryCount", "0", "MaxRetries", "3", "RetryDelayUntil", "", "WorkerId", ""),
        *("CreatedAt", "2026-01-02T03:04:05.1234567+00:00", "StartedAt", "", "CompletedAt", ""),
        *("LastUpdatedAt", "2026-01-02T03:04:05.1234567+00:00"),
    )
    # Its score is seconds.
    await raw.command("ZADD", "ae:jobs:queue", 1_767_323_045, ID)
    (claimed,) = await claim(jobs)
    assert claimed.value.job.query_params == [("q", ["1"])]
    await jobs.fail([Failing(claimed.value.held, JobError("C", "m"))])
    assert await raw.command("HGET", f"ae:job:{ID}", "Error") == '{"code":"C","message":"m"}'


async def test_a_job_that_a_dotnet_service_executes_is_left_to_it(jobs, raw):
    await jobs.create([job(status=JobStatus.IN_PROGRESS, worker_id=OTHER)])
    await raw.command("ZADD", "ae:jobs:inprogress", 1_767_323_045, ID)
    assert await jobs.reap() == []
    held = Held(ID, OTHER, "")
    assert await jobs.heartbeat([held]) == ["lost"]


async def test_a_job_of_another_services_name_that_is_not_due_yet_keeps_its_score(jobs, raw):
    # .NET's score is the delay in whole seconds, so its job looks due for up to a second.
    in_a_year = "2099-01-01T00:00:00.9000000Z"
    await raw.command(
        *("HSET", f"ae:job:{ID}", "Id", ID, "Name", "of.theirs", "Status", "200"),
        *("RetryDelayUntil", in_a_year, "CreatedAt", in_a_year, "LastUpdatedAt", in_a_year),
    )
    await raw.command("ZADD", "ae:jobs:queue", 1_767_323_045, ID)
    assert await claim(jobs) == []
    assert float(await raw.command("ZSCORE", "ae:jobs:queue", ID)) == 1_767_323_045  # S4-3


async def test_a_text_that_nothing_can_read_stops_no_migration(jobs, raw):
    await raw.command("SET", f"ae:job:{ID}", as_text(job()))
    await raw.command("SET", f"ae:job:{OTHER}", '{"headers":' + "[" * 100_000)
    strange = as_text(job()).replace(
        "2026-01-02T03:04:05.1234567+00:00", "0001-01-01T00:00:00+05:00"
    )
    third = ID[:-1] + "3"
    await raw.command("SET", f"ae:job:{third}", strange.replace(ID, third))
    await raw.command("SET", b"ae:job:\xff", "{}")
    done = await migrate(jobs.table, lambda *_: None)
    assert (done.hashes, len(done.left)) == (1, 3)  # R4-1
    read = await jobs.get([ID, OTHER, third])
    assert [one.code for one in read] == ["", "DESERIALIZATION_ERROR", "DESERIALIZATION_ERROR"]


async def test_a_job_that_is_nested_too_deep_is_refused_alone(jobs):
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    results = await jobs.create([job(route_params={"x": deep}), job(OTHER)])
    assert [one.code for one in results] == ["JOB_STORE_ERROR", ""]


def as_text(one):
    """As AsyncEndpoints stored a job before the hashes."""
    return json.dumps(
        {
            "id": one.id,
            "name": one.name,
            "status": int(one.status),
            "headers": {"a": ["1"]},
            "routeParams": {"n": 7},
            "queryParams": [{"key": "q", "value": ["1"]}],
            "payload": '{"x": 1}',
            "result": None,
            "error": None,
            "retryCount": 1,
            "maxRetries": 3,
            "retryDelayUntil": None,
            "workerId": None,
            "createdAt": "2026-01-02T03:04:05.1234567+00:00",
            "startedAt": None,
            "completedAt": None,
            "lastUpdatedAt": "2026-01-02T03:04:05.1234567+00:00",
        }
    )


async def test_jobs_that_are_texts_become_hashes_and_are_claimed(jobs, raw):
    ids = [f"0a1b2c3d-0000-4000-8000-{n:012d}" for n in range(1, 1001)]
    await raw.commands([("SET", f"ae:job:{one}", as_text(job(one))) for one in ids])
    await raw.commands([("ZADD", "ae:jobs:queue", 1_767_323_045, one) for one in ids])
    await raw.command("SET", f"ae:job:{OTHER[:-1]}f", "{")
    # It is read before the migration, too.
    (read,) = await jobs.get([ids[0]])
    assert (read.value.payload, read.value.retry_count) == ('{"x": 1}', 1)  # R4-19
    assert await claim(jobs) == []
    seen = []
    done = await migrate(jobs.table, lambda *counts: seen.append(counts))
    assert (done.hashes, done.left) == (1000, (f"{OTHER[:-1]}f",))  # R4-1
    assert seen[-1] == (1001, 1000)
    assert await raw.command("TYPE", f"ae:job:{ids[7]}") == "hash"  # R4-1
    assert len(await claim(jobs, 1000)) == 1000
    # R4-1: a second run finds nothing more to do.
    again = await migrate(jobs.table, lambda *_: None)
    assert again.hashes == 0


async def test_a_text_that_changes_while_it_is_converted_is_not_lost(jobs, raw):
    await raw.command("SET", f"ae:job:{ID}", as_text(job()))
    table, call = jobs.table, jobs.table._call
    changed = as_text(replace(job(), name="other.name"))

    async def racing(name, ids, args):
        if name == "job_migrate":
            await raw.command("SET", f"ae:job:{ID}", changed)
        return await call(name, ids, args)

    table._call = racing
    assert await table.to_hashes([ID]) == ["STALE"]
    assert await raw.command("GET", f"ae:job:{ID}") == changed
    table._call = call
    assert (await migrate(table, lambda *_: None)).hashes == 1
    assert await raw.command("HGET", f"ae:job:{ID}", "Name") == "other.name"
