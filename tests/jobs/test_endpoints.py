"""A slow endpoint answers 202, and its job can be read, awaited, followed and canceled."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

import httpx
import pytest
from fastapi import Body, FastAPI

from gesta import Engine
from gesta.domain.commands import Cancel, Lose
from gesta.errors import BadFlow, StoreError
from gesta.jobs.endpoints import EndpointsCore
from gesta.jobs.fastapi import Endpoints
from gesta.ports.read_model import key_of
from gesta.requests.recorder import no_job
from gesta.worker.release import LateCancellation
from tests.jobs.shops import NAME, RAW_SHOPS, SHOPS, Work


@pytest.fixture(params=SHOPS)
def shop(request):
    return SHOPS[request.param]


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged():
    """What the jobs log. Litestar replaces the handlers of the root logger."""
    handler = Kept()
    logging.getLogger("gesta.jobs").addHandler(handler)
    yield handler.records
    logging.getLogger("gesta.jobs").removeHandler(handler)


@asynccontextmanager
async def open_shop(shop, tmp_path, **options):
    engine, work = Engine(f"sqlite:///{tmp_path}/gesta.db"), Work()
    app = shop(engine, work, **{"on_unknown": "resend", **options})
    async with (
        engine,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://shop", timeout=30
        ) as client,
    ):
        yield client, work, engine


@asynccontextmanager
async def any_value(tmp_path):
    """An endpoint that takes any JSON."""
    engine, app = Engine(f"sqlite:///{tmp_path}/gesta.db"), FastAPI()
    jobs = Endpoints(engine)

    @app.post("/any", status_code=202)
    @jobs.endpoint("any.value", on_unknown="manual")
    async def handle(value: Annotated[Any, Body(embed=True)]): ...

    transport = httpx.ASGITransport(app)
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://s") as client:
        yield client, engine


async def submit(client, title="q1", *, pages=2, copies=3, **headers):
    body = {"title": title, "pages": pages}
    return await client.post(f"/reports/{copies}", json=body, headers=headers)


async def ended(client, answer):
    return (await client.get(answer.headers["location"], params={"wait": "20s"})).json()


async def test_a_call_is_accepted_and_its_result_is_read_later(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, engine):
        answer = await submit(client)
        assert answer.status_code == 202
        job = answer.json()
        assert set(job) == {
            "id",
            "name",
            "status",
            "retryCount",
            "maxRetries",
            "createdAt",
            "startedAt",
            "completedAt",
            "lastUpdatedAt",
            "result",
            "error",
        }
        assert (job["name"], job["maxRetries"], job["error"]) == (NAME, 3, None)
        assert answer.headers["location"] == f"/jobs/{job['id']}"
        done = await ended(client, answer)
        assert (done["status"], done["result"]) == ("Completed", {"title": "q1", "pages": 6})
        assert None not in (done["startedAt"], done["completedAt"])
        assert work.calls == [("q1", 2)]
        # It is a request like any other.
        types = [kind for kind, *_ in await engine.history(job["id"])]
        assert types[0].endswith("RequestCreated.v1")
        assert types[-1].endswith("Completed.v1")


async def test_the_same_id_is_the_same_job_and_other_content_a_conflict(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, _):
        own = str(uuid4())
        header = {"X-Async-Request-Id": own.upper()}
        first, again = await submit(client, **header), await submit(client, **header)
        assert first.json()["id"] == again.json()["id"] == own
        assert again.status_code == 202
        await ended(client, first)
        other = await submit(client, "q2", **header)
        assert other.status_code == 409  # S4-25
        assert other.headers["content-type"].startswith("application/problem+json")
        assert "q1" not in other.text
        # S4-25: another tenant neither gets the job nor learns what it is.
        stranger = await submit(client, **header, **{"X-Tenant": "other"})
        assert stranger.status_code == 409
        read = await client.get(f"/jobs/{own}", headers={"X-Tenant": "other"})
        assert read.status_code == 404
        assert work.calls == [("q1", 2)]


@pytest.mark.parametrize("bad", ["7", "", "x" * 99, "00000000-0000-0000-0000-000000000000"])
async def test_an_id_that_is_no_guid_is_refused(shop, tmp_path, bad):
    async with open_shop(shop, tmp_path) as (client, _, engine):
        answer = await submit(client, **{"X-Async-Request-Id": bad})
        assert answer.status_code == 400  # S4-25
        assert answer.json()["code"] == "bad_job_id"
        assert await engine.find() == []


async def test_an_unknown_job_is_a_404_and_a_bad_id_a_400(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, _, __):
        answer = await client.get(f"/jobs/{uuid4()}")
        assert answer.status_code == 404  # S4-29
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert (await client.get("/jobs/7")).status_code == 400
        assert (await client.delete(f"/jobs/{uuid4()}")).status_code == 404
        assert (await client.put(f"/jobs/{uuid4()}")).status_code == 405


async def test_a_typed_error_ends_the_job_with_code_and_message(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, _):
        done = await ended(client, await submit(client, "reject"))
        assert done["status"] == "Failed"
        error = {"code": "NO_PAPER", "message": "The printer is out of paper"}
        assert done["error"] == error  # S4-22: nothing else
        assert len(work.calls) == 1  # S4-27: no retry


@pytest.mark.parametrize(
    ("title", "code"), [("set", "RESULT_NOT_STORABLE"), ("large", "RESULT_TOO_LARGE")]
)
async def test_a_result_that_cannot_be_stored_fails_the_job(shop, tmp_path, title, code):
    async with open_shop(shop, tmp_path) as (client, work, _):
        done = await ended(client, await submit(client, title))
        assert (done["status"], done["result"], done["error"]["code"]) == ("Failed", None, code)
        assert len(work.calls) == 1


async def test_an_unexpected_error_shows_clients_nothing_of_it(shop, tmp_path):
    async with open_shop(shop, tmp_path, on_unknown="manual") as (client, work, engine):
        answer = await submit(client, "crash")
        done = await ended(client, answer)
        assert (done["status"], done["error"]["code"]) == ("Unknown", "unexpected_error")
        assert done["retryCount"] == 0  # The only attempt was no retry.
        assert "hunter2" not in json.dumps(done)  # S4-22
        assert len(work.calls) == 1
        # The operator decides.
        request = await engine.request(done["id"])
        await request.resolve("executed", by="ops", evidence="printed")
        assert (await ended(client, answer))["status"] == "Completed"


async def test_a_null_result_is_null(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, _, __):
        done = await ended(client, await submit(client, "nothing"))
        assert (done["status"], done["result"]) == ("Completed", None)


async def test_a_stream_follows_the_job_to_its_end(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, _):
        work.go.clear()
        answer = await submit(client)
        asyncio.get_running_loop().call_later(0.7, work.go.set)
        stream = await client.get(
            answer.headers["location"], headers={"Accept": "text/event-stream"}
        )
        assert stream.headers["content-type"] == "text/event-stream"
        jobs = [
            json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")
        ]
        statuses = [job["status"] for job in jobs]
        assert statuses[-1] == "Completed"
        assert "InProgress" in statuses
        assert jobs[-1]["result"] == {"title": "q1", "pages": 6}


async def test_a_stream_ends_soon_after_its_reader_has_gone(tmp_path, monkeypatch):
    reads = []
    async with open_shop(SHOPS["fastapi"], tmp_path) as (client, work, _):
        work.go.clear()
        answer = await submit(client)
        read = EndpointsCore.read

        async def counted(endpoints, request):
            reads.append(request)
            return await read(endpoints, request)

        monkeypatch.setattr(EndpointsCore, "read", counted)
        sent, is_open = [], asyncio.Event()

        async def receive():
            await is_open.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if message.get("body", b"").startswith(b"event: job"):
                is_open.set()

        headers = [(b"accept", b"text/event-stream")]
        scope = {"type": "http", "method": "GET", "path": answer.headers["location"]}
        app = client._transport.app
        await app(scope | {"headers": headers, "query_string": b""}, receive, send)
        # The next look ends it, however long the job still runs.
        assert len(reads) <= 3
        assert sent[-1]["more_body"] is False
        work.go.set()


async def test_a_stream_whose_store_fails_sends_the_problem_and_ends(shop, tmp_path, monkeypatch):
    async with open_shop(shop, tmp_path) as (client, work, _):
        work.go.clear()
        answer = await submit(client)
        read, reads = EndpointsCore.read, []

        async def read_once(endpoints, request):
            reads.append(request)
            if len(reads) > 1:
                raise StoreError("hunter2")
            return await read(endpoints, request)

        monkeypatch.setattr(EndpointsCore, "read", read_once)
        stream = await client.get(
            answer.headers["location"], headers={"Accept": "text/event-stream"}
        )
        events = [line for line in stream.text.splitlines() if line.startswith("event: ")]
        assert (stream.status_code, events) == (200, ["event: job", "event: problem"])
        assert '"unavailable"' in stream.text
        assert "hunter2" not in stream.text
        work.go.set()


async def test_an_id_that_another_endpoint_has_used_is_a_conflict(tmp_path):
    engine, app = Engine(f"sqlite:///{tmp_path}/gesta.db"), FastAPI()
    jobs = Endpoints(engine)
    app.mount("/jobs", jobs.app)

    @app.post("/one", status_code=202)
    @jobs.endpoint("one.thing", on_unknown="manual")
    async def one(n: int) -> int:
        return n

    @app.post("/two", status_code=202)
    @jobs.endpoint("two.things", on_unknown="manual")
    async def two(n: int) -> int:
        return 2 * n

    transport, header = httpx.ASGITransport(app), {"X-Async-Request-Id": str(uuid4())}
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://s") as client:
        first = await client.post("/one?n=1", headers=header)
        assert (await ended(client, first))["result"] == 1
        assert (await client.post("/two?n=1", headers=header)).status_code == 409  # S4-25


async def test_a_job_is_canceled_before_it_starts_and_not_after_its_end(shop, tmp_path):
    async with open_shop(shop, tmp_path, concurrency=1) as (client, work, _):
        work.go.clear()
        first, second = await submit(client, "one"), await submit(client, "two")
        canceled = await client.delete(second.headers["location"])
        assert canceled.status_code == 202
        work.go.set()
        assert (await ended(client, first))["status"] == "Completed"
        assert (await ended(client, second))["status"] == "Canceled"
        assert (await client.delete(first.headers["location"])).status_code == 409


async def test_a_job_whose_handler_failed_unexpectedly_can_be_canceled(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, _):
        work.go.clear()
        answer = await submit(client, "crash")
        while not work.calls:
            await asyncio.sleep(0.01)
        assert (await client.delete(answer.headers["location"])).status_code == 202
        work.go.set()
        done = await ended(client, answer)
        assert (done["status"], len(work.calls)) == ("Canceled", 1)


async def test_a_job_that_waits_for_a_retry_after_a_crash_can_be_canceled(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, work, engine):
        await engine.admin.pause(flow=NAME)
        answer = await submit(client, "crash")
        view = await engine.get(answer.json()["id"])
        # The worker that had leased it is lost.
        flow = engine.pipeline.flows[NAME]
        lose = Lose(view.state.updated_at)
        await engine.pipeline.recorder.apply(view, lose, flow.rules, no_job, causation_id="t")
        assert (await client.delete(answer.headers["location"])).status_code == 202
        assert (await ended(client, answer))["status"] == "Canceled"
        assert work.calls == []


async def test_a_job_canceled_while_a_pause_holds_it_after_a_crash_ends(tmp_path):
    async with open_shop(SHOPS["fastapi"], tmp_path) as (client, _, engine):
        await engine.admin.pause(flow=NAME)
        answer = await submit(client, "crash")
        pipeline = engine.pipeline
        view, rules = await engine.get(answer.json()["id"]), pipeline.flows[NAME].rules
        for command in (Lose(0), Cancel(active=True)):
            # The job is leased meanwhile, and then held.
            view = await engine.get(view.state.id)
            await pipeline.recorder.apply(view, command, rules, no_job, causation_id="t")
        late = LateCancellation(pipeline.flows, pipeline.loader, pipeline.recorder)
        await late.look([key_of(view.state)])
        # The worker that holds the job looks, too, and may be the one that ends it.
        assert (await ended(client, answer))["status"] == "Canceled"


async def test_a_job_whose_end_a_person_decides_is_not_said_to_have_ended(shop, tmp_path):
    async with open_shop(shop, tmp_path, on_unknown="manual") as (client, _, __):
        answer = await submit(client, "crash")
        assert (await ended(client, answer))["status"] == "Unknown"
        refused = await client.delete(answer.headers["location"])
        assert (refused.status_code, refused.json()["code"]) == (409, "unknown_outcome")
        assert "ended" not in refused.json()["detail"]


async def test_only_allowed_headers_are_stored(tmp_path):
    async with open_shop(SHOPS["starlette"], tmp_path, headers=["X-Trace"]) as (client, _, engine):
        secrets = {"Authorization": "Bearer s3cret", "Cookie": "sid=s3cret", "X-Trace": "t-1"}
        answer = await submit(client, **secrets)
        payload = await (await engine.request(answer.json()["id"])).payload()
        assert payload.headers == {"x-trace": ["t-1"]}  # S4-22, X-6
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("gesta.db*"))
    assert b"s3cret" not in stored


def test_secrets_cannot_be_allowed(tmp_path):
    jobs = Endpoints(Engine(f"sqlite:///{tmp_path}/gesta.db"))
    with pytest.raises(BadFlow, match="authorization"):

        @jobs.endpoint("a.b", on_unknown="resend", headers=["Authorization"])
        async def handler(): ...


async def test_a_call_that_is_too_large_is_refused_and_nothing_is_stored(shop, tmp_path):
    async with open_shop(shop, tmp_path) as (client, _, engine):
        answer = await submit(client, "x" * 300_000)
        assert answer.status_code == 413
        assert await engine.find() == []


@pytest.mark.parametrize("value", ["\\ud800", "\\udfff x"])
@pytest.mark.parametrize("name", ["fastapi", "litestar"])
async def test_a_text_that_is_not_unicode_is_refused_and_nothing_is_stored(name, tmp_path, value):
    async with open_shop(SHOPS[name], tmp_path) as (client, work, engine):
        answer = await client.post(
            "/reports/1",
            content=f'{{"title": "{value}"}}',
            headers={"Content-Type": "application/json"},
        )
        assert 400 <= answer.status_code < 500
        assert await engine.find() == []
        assert work.calls == []


NO_JSON = ("{", "q1", '{"title": "\\ud800"}', "title=q1", "[" * 100_000)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", None])
@pytest.mark.parametrize("name", RAW_SHOPS)
async def test_a_body_that_is_no_json_is_refused_and_nothing_is_stored(name, tmp_path, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    async with open_shop(RAW_SHOPS[name], tmp_path) as (client, work, engine):
        for body in NO_JSON:
            answer = await client.post("/raw", content=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_body"), body[:20]
            assert answer.headers["content-type"].startswith("application/problem+json")
        assert await engine.find() == []
        assert work.calls == []


@pytest.mark.parametrize("name", RAW_SHOPS)
async def test_an_endpoint_takes_calls_without_a_body_unless_it_declares_json(name, tmp_path):
    async with open_shop(RAW_SHOPS[name], tmp_path) as (client, _, __):
        done = await ended(client, await client.post("/raw"))
        assert (done["status"], done["result"]) == ("Completed", "")
    async with open_shop(RAW_SHOPS[name], tmp_path, body="json") as (client, _, engine):
        before = len(await engine.find())
        answer = await client.post("/raw")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
        assert len(await engine.find()) == before
        assert (await client.post("/raw", json=None, content="null")).status_code == 202


@pytest.mark.parametrize("name", RAW_SHOPS)
async def test_an_endpoint_that_declares_text_takes_any_text(name, tmp_path):
    async with open_shop(RAW_SHOPS[name], tmp_path, body="text") as (client, _, engine):
        csv = {"Content-Type": "text/csv"}
        done = await ended(client, await client.post("/raw", content="a;b", headers=csv))
        assert (done["status"], done["result"]) == ("Completed", "a;b")
        answer = await client.post("/raw", content=b"\xff", headers=csv)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_body")
        assert len(await engine.find()) == 1


async def test_json_of_a_stored_text_that_is_none_fails_the_job_at_once(tmp_path):
    async with open_shop(SHOPS["starlette"], tmp_path, body="text") as (client, work, _):
        for body in ("{", "", "[" * 100_000):
            done = await ended(client, await client.post("/reports/1", content=body))
            assert (done["status"], done["error"]["code"]) == ("Failed", "BAD_ARGUMENTS")
            assert done["retryCount"] == 0
        assert work.calls == []


async def test_a_tenant_function_that_raises_is_logged_and_a_500(tmp_path, logged):
    engine, app = Engine(f"sqlite:///{tmp_path}/gesta.db"), FastAPI()
    app.mount("/jobs", Endpoints(engine, tenant=lambda headers: headers["x-none"]).app)
    transport = httpx.ASGITransport(app)
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://s") as client:
        answer = await client.get(f"/jobs/{uuid4()}")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert "tenant= of Endpoints" in logged[0].getMessage()


async def test_a_value_that_json_cannot_hold_is_refused_and_nothing_is_stored(tmp_path):
    async with any_value(tmp_path) as (client, engine):
        for body in ('"\\ud800"', '{"\\ud800": 1}', "NaN", "[Infinity]"):
            answer = await client.post(
                "/any",
                content=f'{{"value": {body}}}',
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_call"), body
        assert await engine.find() == []


@pytest.mark.parametrize("result", ["", 7, None])
async def test_a_call_that_names_no_person_is_refused_and_nothing_is_stored(tmp_path, result):
    subject = {"subject": lambda _: result}
    async with open_shop(SHOPS["fastapi"], tmp_path, **subject) as (client, work, engine):
        answer = await submit(client)
        assert (answer.status_code, answer.json()["code"]) == (400, "no_subject")
        assert await engine.find() == []
        assert work.calls == []


@pytest.mark.parametrize("option", ["subject", "priority"])
async def test_a_function_of_the_program_that_raises_is_logged_and_a_500(
    shop, tmp_path, option, logged
):
    def broken(call):
        raise KeyError("hunter2")

    async with open_shop(shop, tmp_path, **{option: broken}) as (client, work, engine):
        answer = await submit(client)
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert "hunter2" not in answer.text
        assert f"{option}= of the endpoint {NAME}" in logged[0].getMessage()
        assert logged[0].exc_info[0] is KeyError
        assert await engine.find() == []
        assert work.calls == []


@pytest.mark.parametrize("wait", ["-1", "61", "soon", "1e9", ""])
async def test_an_invalid_wait_is_refused(tmp_path, wait):
    async with open_shop(SHOPS["fastapi"], tmp_path) as (client, _, __):
        answer = await submit(client)
        polled = await client.get(answer.headers["location"], params={"wait": wait})
        assert polled.status_code == 400


async def test_the_location_is_a_path_of_ours_whatever_the_caller_claims(tmp_path):
    async with open_shop(SHOPS["fastapi"], tmp_path) as (client, _, __):
        forged = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
        answer = await submit(client, **forged)
        assert answer.headers["location"] == f"/jobs/{answer.json()['id']}"


def test_a_handler_that_cannot_be_a_job_is_refused_when_it_is_declared(tmp_path):
    jobs = Endpoints(Engine(f"sqlite:///{tmp_path}/gesta.db"))
    with pytest.raises(BadFlow, match="async def"):
        jobs.endpoint("a.b", on_unknown="resend")(lambda: None)
    with pytest.raises(BadFlow, match="choose on_unknown"):
        jobs.endpoint("a.b")(test_an_id_that_is_no_guid_is_refused)

    async def no_request(title: str): ...

    with pytest.raises(BadFlow, match="body must be 'json'"):
        jobs.endpoint("a.b", on_unknown="resend", body="xml")(no_request)
    with pytest.raises(BadFlow, match="takes the request"):
        jobs.endpoint("a.b", on_unknown="resend", body="json")(no_request)
    with pytest.raises(TypeError, match="no option 'retries'; it takes on_unknown, max_retries"):
        jobs.endpoint("a.b", retries=3)(test_an_id_that_is_no_guid_is_refused)


async def test_retries_wait_longer_and_longer_up_to_five_minutes_with_full_jitter(tmp_path):
    async with open_shop(SHOPS["fastapi"], tmp_path, max_retries=20) as (_, __, engine):
        policy = engine.pipeline.flows[NAME].rules.retry
        # S4-27: 2 s, 4 s, … 300 s are the ceilings, and a wait is anything below.
        longest = [policy.delay_seconds(n, 0.999999) for n in (1, 2, 8, 9, 20)]
        assert longest == pytest.approx([2, 4, 256, 300, 300], rel=1e-5)
        assert policy.delay_seconds(9, 0.0) == 0
        assert policy.delay_seconds(9, 0.5) == 150
        assert policy.delay_seconds(21, 0.5) is None


@pytest.mark.parametrize("name", SHOPS)
async def test_a_header_that_comes_twice_names_the_same_tenant_to_submit_and_to_read(
    name, tmp_path
):
    async with open_shop(SHOPS[name], tmp_path) as (client, _, __):
        twice = [("X-Tenant", "acme"), ("X-Tenant", "default")]
        body = {"title": "q1", "pages": 2}
        answer = await client.post("/reports/3", json=body, headers=twice)
        location = answer.headers["location"]
        assert (await client.get(location, headers=twice)).status_code == 200
        statuses = {
            tenant: (await client.get(location, headers={"X-Tenant": tenant})).status_code
            for tenant in ("acme", "default")
        }
        assert statuses == {"acme": 200, "default": 404}


@pytest.mark.parametrize("name", SHOPS)
async def test_every_value_of_an_allowed_header_is_stored(name, tmp_path):
    async with open_shop(SHOPS[name], tmp_path, headers=["X-Tag"]) as (client, _, engine):
        twice = [("X-Tag", "a"), ("X-Tag", "b")]
        body = {"title": "q1", "pages": 2}
        await ended(client, await client.post("/reports/3", json=body, headers=twice))
        (view,) = await engine.find()
        assert json.loads(view.payload)["headers"] == {"x-tag": ["a", "b"]}  # R4-5
