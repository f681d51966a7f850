"""`make bench --http`: what the door costs.

Single submits beside a bare route that only validates, batches beside the same batches in process.

The server, bare or ours, runs in this process; the callers run in another one. Single submits are
measured twice: where the process is the
API alone, as in `gesta api`, and where all components run in it, too, as in `gesta serve`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks import check
from benchmarks.callers import Called, Task
from benchmarks.child import run_module
from benchmarks.load import BATCH, Load
from benchmarks.run import Tell
from benchmarks.store import BenchStore
from benchmarks.subjects import PLAIN, TEXT, Note
from gesta.api_types.requests import Submit
from gesta.domain.events import Actor
from gesta.engine.engine import Engine
from gesta.errors import GestaError
from gesta.http_api.server import bind, serving
from gesta.runtime.clock import sleep

SINGLE = ("single", "single, keyed")
BESIDE = ("single beside the pipeline", "single beside the pipeline, keyed")
BATCHES = ("batches", "batches, keyed")
(SUCCESS,) = PLAIN.flow.lifecycle.success
STAGES = (
    "bare route",
    *SINGLE,
    "bare again",
    "until all are done",
    "in process",
    *BESIDE,
    *BATCHES,
    "in process again",
    "count",
)
CONNECTIONS = 64
#: As many as keep the same number of requests waiting as the load in process does.
BATCH_CONNECTIONS = 2
#: What one key may ask here: the bench is not about limits.
UNLIMITED = 1_000_000
#: When nothing more ends for so long, what is missing counts as lost.
STALL_SECONDS = 30.0


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    requests_per_second: float
    #: Of what it is held against.
    ratio: float
    p50_ms: float
    p99_ms: float


class HttpFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench --http --json` prints."""

    requests: int
    connections: int
    bare_runs: list[float]
    single: Rate
    single_keyed: Rate
    #: The same, where all components run in the server's process.
    single_beside: Rate
    single_beside_keyed: Rate
    #: What batches are held against, those with keys against others with keys.
    in_process_runs: list[float]
    in_process_keyed_runs: list[float]
    batch: Rate
    batch_keyed: Rate
    errors: list[str]


async def measure_http(requests: int, store: BenchStore, tell: Tell) -> HttpFigures:
    """On a fresh store."""
    settings = replace(store.settings, api_rate=UNLIMITED)
    runs: dict[str, tuple[Called, float]] = {}
    ids: list[str] = []

    async def run(engine: Engine, stages: Sequence[str], *, until_done: bool) -> None:
        async with _served(engine) as task:
            for stage in stages:
                tell(stage, 0, 1)
                called = await call_from_outside(_task(task, stage, requests))
                ids.extend(called.ids)
                waited = await _all_done(engine, len(ids)) if until_done else 0.0
                # The client's own start is not the server's.
                runs[stage] = called, called.seconds + waited

    async def in_process(engine: Engine, *, keyed: bool) -> float:
        load = Load(engine, PLAIN.payload, keyed=keyed, stall_seconds=STALL_SECONDS)
        seconds = await load.full(requests, batch=True)
        ids.extend(load.ids)
        return requests / seconds

    tell("bare route", 0, 1)
    bare = [await _bare(requests)]
    async with Engine(settings=settings, flows=[PLAIN.flow], work=False) as engine:
        mark = await check.mark(engine, PLAIN)
        await run(engine, SINGLE, until_done=False)
    tell("bare again", 0, 1)
    bare.append(await _bare(requests))
    async with Engine(settings=settings, flows=[PLAIN.flow]) as engine:
        tell("until all are done", 0, 1)
        await _all_done(engine, len(ids))
        inside: dict[bool, list[float]] = {False: [], True: []}
        tell("in process", 0, 1)
        for keyed, rates in inside.items():
            rates.append(await in_process(engine, keyed=keyed))
        await run(engine, (*BESIDE, *BATCHES), until_done=True)
        tell("in process again", 0, 1)
        for keyed, rates in inside.items():
            rates.append(await in_process(engine, keyed=keyed))
    tell("count", 0, 1)
    async with Engine(settings=settings, flows=[PLAIN.flow], work=False) as engine:
        rounds = (*SINGLE, *BESIDE, *BATCHES, *inside[False], *inside[True])
        errors = await check.count_errors(engine, PLAIN, mark, ids, len(rounds) * requests, 0)
    door = [
        rate_of(requests, runs[stage][0].seconds, runs[stage][0], statistics.mean(bare))
        for stage in (*SINGLE, *BESIDE)
    ]
    batches = [
        rate_of(requests, runs[stage][1], runs[stage][0], statistics.mean(rates))
        for stage, rates in zip(BATCHES, inside.values(), strict=True)
    ]
    return HttpFigures(
        requests=requests,
        connections=CONNECTIONS,
        bare_runs=[round(one) for one in bare],
        single=door[0],
        single_keyed=door[1],
        single_beside=door[2],
        single_beside_keyed=door[3],
        in_process_runs=[round(one) for one in inside[False]],
        in_process_keyed_runs=[round(one) for one in inside[True]],
        batch=batches[0],
        batch_keyed=batches[1],
        errors=errors,
    )


def _task(task: Task, stage: str, requests: int) -> Task:
    keyed = stage.endswith("keyed")
    if stage.startswith("single"):
        return msgspec.structs.replace(task, calls=requests, connections=CONNECTIONS, keyed=keyed)
    calls = max(1, requests // BATCH)
    return msgspec.structs.replace(
        task,
        path="/v1/requests/batch",
        calls=calls,
        connections=min(calls, BATCH_CONNECTIONS),
        each=requests // calls,
        keyed=keyed,
    )


async def _all_done(engine: Engine, wanted: int) -> float:
    """The seconds until so many have been sent, or nothing more happens."""
    done, began = -1, time.perf_counter()
    moved = began
    while done < wanted and time.perf_counter() - moved < STALL_SECONDS:
        before, done = done, (await engine.admin.counts()).get((PLAIN.flow.name, SUCCESS), 0)
        if done != before:
            moved = time.perf_counter()
        await sleep(engine.pipeline.runtime, 0.02)
    return time.perf_counter() - began


async def call_from_outside(task: Task) -> Called:
    lines: list[str] = []
    last = await run_module(
        "benchmarks.callers", (), msgspec.json.encode(task).decode(), lines.append
    )
    called = msgspec.structs.replace(msgspec.json.decode(last, type=Called), ids=lines[:-1])
    wrong = {status: count for status, count in called.statuses.items() if status not in (200, 202)}
    if wrong:
        raise GestaError(f"the API refused what it should take: {wrong}")
    return called


@asynccontextmanager
async def _served(engine: Engine) -> AsyncIterator[Task]:
    _, key = await engine.admin.create_key(name="bench", scopes=("submit",), actor=Actor("bench"))
    async with listening(engine.web()) as port:
        yield Task("127.0.0.1", port, "/v1/requests", key, 0, 0, flow=PLAIN.flow.name, text=TEXT)


async def _bare(requests: int) -> float:
    """The bound: the same server and the same body, validated, and an answer that says so."""

    async def validate(request: Request) -> Response:
        asked = msgspec.json.decode(await request.body(), type=Submit)
        msgspec.convert(asked.payload, Note)
        return Response(
            b'{"id":"0190b6f2-7c1a-7000-8000-000000000000",'
            b'"flow":"bench.plain","verdict":"created"}',
            202,
            media_type="application/json",
        )

    async with listening(
        Starlette(routes=[Route("/v1/requests", validate, methods=["POST"])])
    ) as port:
        called = await call_from_outside(
            Task(
                "127.0.0.1",
                port,
                "/v1/requests",
                "none",
                requests,
                CONNECTIONS,
                flow=PLAIN.flow.name,
                text=TEXT,
            )
        )
    return requests / called.seconds


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    listener = bind("127.0.0.1", 0)
    async with serving(app, listener):
        yield listener.getsockname()[1]


def rate_of(requests: int, seconds: float, called: Called, bound: float) -> Rate:
    rate = requests / seconds
    return Rate(
        requests_per_second=round(rate),
        ratio=round(rate / bound, 3),
        p50_ms=round(called.p50_ms, 1),
        p99_ms=round(called.p99_ms, 1),
    )


def http_rows(figures: HttpFigures) -> dict[str, str]:
    def described(rate: Rate) -> str:
        return (
            f"{rate.requests_per_second:,.0f} per second, {rate.ratio:.2f} of it, p50"
            f" {rate.p50_ms:.1f} ms, p99 {rate.p99_ms:.1f} ms"
        )

    bare, inside, keyed = (
        " and ".join(f"{one:,.0f}" for one in runs)
        for runs in (figures.bare_runs, figures.in_process_runs, figures.in_process_keyed_runs)
    )
    return {
        "requests": f"{figures.requests:,} each time",
        "bare route": (
            f"{bare} per second over {figures.connections} connections: it validates the same body"
            " and answers"
        ),
        "single": described(figures.single),
        "single with keys": described(figures.single_keyed),
        "beside the pipeline": described(figures.single_beside),
        "beside, with keys": described(figures.single_beside_keyed),
        "in process": f"{inside} per second by submit_many, until all are done; {keyed} with keys",
        "batches": f"{described(figures.batch)} a call",
        "batches with keys": f"{described(figures.batch_keyed)} a call",
        "count": "; ".join(figures.errors) or "every request done once",
    }
