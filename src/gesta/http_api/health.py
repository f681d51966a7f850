"""/live, /ready and /metrics: the state of the process for orchestrators and monitoring."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from gesta.api_types.structs import Representation
from gesta.engine.health import ProcessHealth
from gesta.http_api.endpoint import send_answer
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Live(Representation, frozen=True):
    """`wrong`: component → error."""

    live: bool
    wrong: dict[str, str]


class Ready(Representation, frozen=True):
    """`wrong`: the store or a component → error."""

    ready: bool
    wrong: dict[str, str]


async def live(call: Call) -> Answer:
    """Whether every component runs. If not, a restart helps."""
    return await _live(_health(call))


async def ready(call: Call) -> Answer:
    """Whether every component runs and the store accepts writes."""
    return await _ready(_health(call))


async def metrics(call: Call) -> Answer:
    """The metrics of the process in Prometheus' text format.

    They cover all tenants, so they need a key of the tenant in the process's settings.
    """
    own = call.engine.settings.tenant
    if call.tenant != own:
        raise Problem(
            403,
            "not_your_process",
            "metrics cover all tenants; use a key of the tenant in the settings of the process",
        )
    return await _metrics(_health(call))


class HealthApp:
    """The same without keys, on a separate port, also before the engine has started."""

    def __init__(self, health: ProcessHealth) -> None:
        self._health = health

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        known = _ANSWERS.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if known is None:
            detail = f"GET one of {', '.join(_ANSWERS)}"
            await send_answer(Problem(404, "no_route", detail).answer(), send)
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
        "Liveness",
        "process",
        answer=Live,
        problems=(503,),
    ),
    Route(
        "GET",
        "/ready",
        ready,
        None,
        "Readiness",
        "process",
        answer=Ready,
        problems=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        "operate",
        "Prometheus metrics",
        "process",
        without_key=(
            "it needs the scope operate: `gesta key create --scope operate`. A scrape without"
            " a key goes to the health port of a process: `gesta worker --health-port 8080`, with"
            " --app MODULE:NAME if the flows are those of a program"
        ),
        answer=str,
        gives="text/plain",
    ),
]
