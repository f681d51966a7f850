"""`make bench --ingest`: Slack events beside a bare route that only checks the same signature.

The server, bare or ours, runs in this process as in `gesta api`; the callers run in another one.
Every event is accepted: it is on disk before its answer.
"""

from __future__ import annotations

import hashlib
import hmac
import statistics
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.callers import Called, Task
from benchmarks.over_http import CONNECTIONS, Rate, call_from_outside, listening, rate_of
from benchmarks.run import Tell
from benchmarks.store import BenchStore
from gesta.engine.engine import Engine
from gesta.flows import ticket
from gesta.intake.inbound import slack
from gesta.runtime.clock import SystemRuntime
from gesta.sandbox.slack import TEAM

STAGES = ("bare route", "events", "bare again", "half of the rate", "count")
PATH = "/inbound/slack/events"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105 -- of this bench alone


class IngestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench --ingest --json` prints."""

    events: int
    connections: int
    bare_runs: list[float]
    ingest: Rate
    #: At half of the rate above.
    half: Rate
    errors: list[str]


async def measure_ingest(events: int, store: BenchStore, tell: Tell) -> IngestFigures:
    """On a fresh store."""
    tell("bare route", 0, 1)
    bare = [await _bare(events)]
    flows = [ticket.flow(), slack.flow()]
    async with Engine(settings=store.settings, flows=flows, work=False) as engine:
        await engine.admin.put_config(slack.TEAM, TEAM, {"signing_secret": SECRET})
        space = {"host": "bench.backlog.com", "api_key": "none"}
        await engine.admin.put_config("backlog.space", "default", space)
        async with listening(engine.web()) as port:
            tell("events", 0, 1)
            called = await call_from_outside(_task(port, events, 1))
            rate = events / called.seconds
            tell("bare again", 0, 1)
            bare.append(await _bare(events))
            tell("half of the rate", 0, 1)
            half = await call_from_outside(_task(port, events, 2, per_second=rate / 2))
    async with Engine(settings=store.settings, flows=flows) as engine:
        tell("count", 0, 1)
        errors = await _count_errors(engine, 2 * events)
    bound = statistics.mean(bare)
    return IngestFigures(
        events=events,
        connections=CONNECTIONS,
        bare_runs=[round(one) for one in bare],
        ingest=rate_of(events, called.seconds, called, bound),
        half=rate_of(events, half.seconds, half, bound),
        errors=errors,
    )


async def _count_errors(engine: Engine, expected: int) -> list[str]:
    """Every event is one request, no more and no fewer."""
    await engine.pipeline.projector.finish(engine.pipeline.runtime.monotonic() + 60)
    counts = await engine.admin.counts()
    found = sum(count for (flow, _), count in counts.items() if flow == ticket.NAME)
    return [] if found == expected else [f"{found} requests of {expected} events"]


def _task(port: int, events: int, round_: int, *, per_second: float = 0.0) -> Task:
    return Task(
        "127.0.0.1",
        port,
        PATH,
        "none",
        events,
        CONNECTIONS,
        per_second=per_second,
        slack_secret=SECRET,
        slack_round=round_,
    )


async def _bare(events: int) -> float:
    """The bound: the same server, the same body, its signature checked, and an answer."""
    secret, runtime = SECRET.encode(), SystemRuntime()

    async def check(request: Request) -> Response:
        body, at = await request.body(), request.headers["x-slack-request-timestamp"]
        signed = f"v0:{at}:".encode() + body
        expected = "v0=" + hmac.digest(secret, signed, hashlib.sha256).hex()
        is_now = abs(runtime.now_ms() / 1000 - int(at)) <= slack.TOLERANCE_SECONDS
        if not is_now or not hmac.compare_digest(expected, request.headers["x-slack-signature"]):
            return Response(status_code=403)
        return Response(b'{"events":[]}', media_type="application/json")

    async with listening(Starlette(routes=[Route(PATH, check, methods=["POST"])])) as port:
        called: Called = await call_from_outside(_task(port, events, 0))
    return events / called.seconds


def ingest_rows(figures: IngestFigures) -> dict[str, str]:
    def described(rate: Any) -> str:
        return (
            f"{rate.requests_per_second:,.0f} per second, {rate.ratio:.2f} of it, p50"
            f" {rate.p50_ms:.1f} ms, p99 {rate.p99_ms:.1f} ms"
        )

    bare = " and ".join(f"{one:,.0f}" for one in figures.bare_runs)
    return {
        "events": f"{figures.events:,} each time",
        "bare route": (
            f"{bare} per second over {figures.connections} connections: it checks the same"
            " signature and answers"
        ),
        "events in": described(figures.ingest),
        "at half of that": described(figures.half),
        "count": "; ".join(figures.errors) or "every event is one request",
    }
