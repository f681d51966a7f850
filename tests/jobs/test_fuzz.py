"""Whatever comes in, answers are the documented ones and nothing is stored in error."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta import Engine
from gesta.domain.stored_job import FIELDS, JobError, JobStatus, StoredJob, fields_of, job_of
from gesta.stores.job_rows import fields_of_row, row_of
from tests.jobs.shops import SHOPS, Work

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.lists(st.none() | text, max_size=3)
moments = st.datetimes(timezones=st.timezones())
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
jobs = st.builds(
    StoredJob,
    id=st.uuids().map(str),
    name=text,
    created_at=moments,
    last_updated_at=moments,
    status=st.sampled_from(JobStatus),
    headers=st.dictionaries(text, values, max_size=3),
    route_params=st.dictionaries(text, json_values, max_size=3),
    query_params=st.lists(st.tuples(text, values), max_size=3),
    payload=text,
    result=st.none() | text,
    error=st.none() | st.builds(JobError, text, text),
    retry_count=st.integers(0, 2**31),
    max_retries=st.integers(0, 2**31),
    retry_delay_until=st.none() | moments,
    worker_id=st.none() | st.uuids().map(str),
    started_at=st.none() | moments,
    completed_at=st.none() | moments,
)


@given(jobs)
def test_a_job_survives_its_fields_and_its_row(job):
    fields = fields_of(job)
    assert set(fields) <= set(FIELDS)
    assert job_of(fields) == job  # R4-5
    assert job_of(fields_of_row(row_of(fields, 0))) == job  # R4-5


def test_a_hash_as_the_document_writes_it_is_read_and_written_as_it_is():
    written = {
        "Id": "0a1b2c3d-0000-4000-8000-000000000001",
        "Name": "reports",
        "Status": "200",
        "Headers": '{"accept":["a",null]}',
        "RouteParams": '{"n":7}',
        "QueryParams": '[{"key":"q","value":["1","2"]}]',
        "Payload": '{"title":"q1"}',
        "Result": "",
        "Error": '{"code":"BUSY","message":"later"}',
        "RetryCount": "1",
        "MaxRetries": "3",
        "RetryDelayUntil": "2026-11-18T07:00:00.0000000Z",
        "WorkerId": "0a1b2c3d-0000-4000-8000-000000000002",
        "CreatedAt": "2026-11-18T06:59:00.1234560+00:00",
        "StartedAt": "2026-11-18T06:59:01.0000000+00:00",
        "CompletedAt": "2026-11-18T06:59:02.0000000+00:00",
        "LastUpdatedAt": "2026-11-18T06:59:03.0000000+00:00",
    }
    assert set(written) == set(FIELDS)
    job = job_of(written)
    assert fields_of(job) == written  # S4-16, R4-2, R4-3: both directions, as code that runs
    assert (job.status, job.retry_count, job.query_params) == (200, 1, [("q", ["1", "2"])])


@given(st.dictionaries(st.sampled_from(FIELDS) | text, text, max_size=20))
def test_any_hash_is_a_job_or_a_value_error(fields):
    try:
        job_of(fields)
    except ValueError:
        return


calls_of_clients = st.lists(
    st.tuples(
        st.sampled_from(["POST /reports/1", "GET /jobs/{}", "DELETE /jobs/{}", "PUT /jobs/{}"]),
        st.binary(max_size=40)
        | st.just(b'{"title": "\\ud800"}')
        | st.just(b'{"title": "t", "pages": 2}'),
        st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
        | st.uuids().map(str),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("shop", SHOPS)
def test_no_call_is_answered_with_a_server_error(shop, tmp_path):
    engine = Engine(f"sqlite:///{tmp_path}/gesta.db")
    transport = httpx.ASGITransport(SHOPS[shop](engine, Work(), on_unknown="manual"))

    async def run(calls: list[tuple[str, bytes, str]]) -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://s") as web:
            for call, body, job_id in calls:
                method, _, path = call.partition(" ")
                answer = await web.request(
                    method,
                    path.format(quote(job_id, safe="")),
                    content=body,
                    headers={"X-Async-Request-Id": job_id, "Content-Type": "application/json"},
                )
                assert answer.status_code < 500, answer.text

    with asyncio.Runner() as runner:

        @given(calls_of_clients)
        def check(calls: list[tuple[str, bytes, str]]) -> None:
            runner.run(run(calls))

        runner.run(engine.start())
        try:
            check()
        finally:
            runner.run(engine.stop())
