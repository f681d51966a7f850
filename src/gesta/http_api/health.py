"""/live, /ready and /metrics: for whoever starts and watches the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gesta.api_types.structs import Representation
from gesta.engine.health import ProcessHealth
from gesta.http_api.endpoint import send_answer
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

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
    return await _live(_health(call))


async def ready(call: Call) -> Answer:
    """Whether beside that the store takes what is written. A restart would not help where not."""
    return await _ready(_health(call))


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
    return await _metrics(_health(call))


class HealthApp:
    """The same without keys, on a port of its own, also before the engine has started."""

    def __init__(self, health: ProcessHealth) -> None:
        self._health = health

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        known = _ANSWERS.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if known is None:
            told = f"there are {', '.join(_ANSWERS)}, to be read"
            await send_answer(Problem(404, "no_route", told).answer(), send)
            return
        await send_answer(await known(self._health), send)


async def _live(health: ProcessHealth) -> Answer:
    wrong = health.not_live()
    return Answer(Live(not wrong, wrong), 503 if wrong else 200)


async def _ready(health: ProcessHealth) -> Answer:
    wrong = await health.not_ready()
    return Answer(Ready(not wrong, wrong), 503 if wrong else 200)


async def _metrics(health: ProcessHealth) -> Answer:
    return Answer(health.metrics(), media_type=METRICS)


def _health(call: Call) -> ProcessHealth:
    health = call.web.health
    health.watch(call.pipeline)
    return health


_ANSWERS = {"/live": _live, "/ready": _ready, "/metrics": _metrics}
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
