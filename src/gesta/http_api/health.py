"""/live, /ready and /metrics: for whoever starts and watches the process."""

from __future__ import annotations

from gesta.api_types.structs import Representation
from gesta.engine.health import ProcessHealth
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Live(Representation, frozen=True):
    """`wrong`: station → fault."""

    live: bool
    wrong: dict[str, str]


class Ready(Representation, frozen=True):
    """`wrong`: the store or a station → fault."""

    ready: bool
    wrong: dict[str, str]


async def live(call: Call) -> Answer:
    """Whether every station runs. A restart helps where not."""
    wrong = _health(call).not_live()
    return Answer(Live(not wrong, wrong), 503 if wrong else 200)


async def ready(call: Call) -> Answer:
    """Whether beside that the store takes what is written. A restart would not help where not."""
    wrong = await _health(call).not_ready()
    return Answer(Ready(not wrong, wrong), 503 if wrong else 200)


async def metrics(call: Call) -> Answer:
    """The process's metrics in Prometheus' text format.

    They are about all tenants, so only keys of the process's own tenant see them.
    """
    own = call.engine.settings.tenant
    if call.tenant != own:
        raise Problem(
            403,
            "not_your_process",
            "these numbers are of all tenants; they take a key of the process's own",
        )
    return Answer(_health(call).metrics(), media_type=METRICS)


def _health(call: Call) -> ProcessHealth:
    health = call.web.health
    health.watch(call.pipeline)
    return health


ROUTES = [
    Route(
        "GET",
        "/live",
        live,
        None,
        "Whether the process lives",
        "process",
        answer=Live,
        problems=(503,),
    ),
    Route(
        "GET",
        "/ready",
        ready,
        None,
        "Whether the process does its work",
        "process",
        answer=Ready,
        problems=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        "operate",
        "Metrics of the process",
        "process",
        answer=str,
        gives="text/plain",
    ),
]
