"""serve, api, projector, worker, sweeper: a process that works until somebody stops it; all
stations in one, or one part of the road each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import Invocation
from gesta.cli.output import tell
from gesta.cli.stop_signal import StopSignal

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.engine.health import ProcessHealth
    from gesta.engine.process_roles import Work
    from gesta.runtime.settings import Settings

_API = "API"

ApiPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="PORT",
        help="The API's port; 0 takes a free one. Without it, api_port.",
        rich_help_panel=_API,
    ),
]
ApiHost = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="The API's address. Without it, api_host.",
        rich_help_panel=_API,
    ),
]
NoApi = Annotated[bool, typer.Option("--no-api", help="Answer no HTTP.", rich_help_panel=_API)]

_HEALTH = "Health"
HOST = "127.0.0.1"
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65535,
        metavar="PORT",
        help="Answer GET /live, /ready and /metrics on this port; 0 takes a free one.",
        rich_help_panel=_HEALTH,
    ),
]
HealthHost = Annotated[
    str,
    typer.Option(
        "--health-host", metavar="HOST", help="The address of that port.", rich_help_panel=_HEALTH
    ),
]
OnlyFlows = Annotated[
    list[str] | None,
    typer.Option(
        "--flow",
        metavar="FLOW",
        help="Only jobs of this flow, or of a kind: 'payment.*'. May be given several times.",
    ),
]


async def serve(
    call: Invocation,
    port: ApiPort = None,
    host: ApiHost = None,
    no_api: NoApi = False,
    health_at: HealthPort = None,
    health_host: HealthHost = HOST,
) -> None:
    r"""Run everything in one process: API, projector, worker and sweep.

    Ctrl-C or SIGTERM lets running attempts end first.

    Flows of your own come from a program: gesta serve --app shop.jobs:engine. Without one, the
    built-in flows run with what
    gesta.toml says in \[flows.webhook] and so on.
    """
    from gesta.engine.process_roles import EVERYTHING

    api = None if no_api else Api(host, port)
    await _work(call, EVERYTHING, health_at, health_host, api)


async def api(
    call: Invocation,
    port: ApiPort = None,
    host: ApiHost = None,
    health_at: HealthPort = None,
    health_host: HealthHost = HOST,
) -> None:
    """Run the HTTP API alone: it accepts and shows requests; projectors, workers and sweepers run
    beside it.
    """
    from gesta.engine.process_roles import NOTHING

    await _work(call, NOTHING, health_at, health_host, Api(host, port))


async def projector(
    call: Invocation, health_at: HealthPort = None, health_host: HealthHost = HOST
) -> None:
    """Run the projector alone: it makes views and jobs from events, and tells the program's
    handlers.

    Several share the work on PostgreSQL; on a file one projects. Others take over within 5 s of a
    death. Workers and sweepers run beside it.
    """
    from gesta.engine.process_roles import Work

    await _work(call, Work(frozenset({"projector"})), health_at, health_host)


async def worker(
    call: Invocation,
    flow: OnlyFlows = None,
    health_at: HealthPort = None,
    health_host: HealthHost = HOST,
) -> None:
    """Run a worker alone: it takes jobs and executes them. All of several processes work.

    SIGTERM lets running attempts end, gives back what has not begun, and ends within 30 s. A
    projector and a sweeper run beside it.
    """
    from gesta.engine.process_roles import Work

    await _work(call, Work(frozenset({"worker"}), tuple(flow or ())), health_at, health_host)


async def sweeper(
    call: Invocation, health_at: HealthPort = None, health_host: HealthHost = HOST
) -> None:
    """Run the sweeper alone: expiry, scheduled requests, due questions, lost jobs, retention.

    Of several processes one sweeps, and another takes over within 5 s of its death. A projector and
    workers run beside it.
    """
    from gesta.engine.process_roles import Work

    await _work(call, Work(frozenset({"sweeper"})), health_at, health_host)


@dataclass(frozen=True)
class Api:
    """Where the API is to answer, where the settings do not say it."""

    host: str | None
    port: int | None


async def _work(
    call: Invocation, work: Work, port: int | None, host: str, api: Api | None = None
) -> None:
    """Start, say so, and work until the signal."""
    from gesta.cli.flows import left_out
    from gesta.engine.process_roles import EVERYTHING
    from gesta.runtime.redaction import scrub

    engine = call.engine(work=work)
    flows = work.taken_of(engine.flows)
    async with StopSignal() as stop:
        async with (
            health_port(port, host) as health,
            call.opened(engine, create=True, is_server=True),
        ):
            health.watch(engine.pipeline)
            settings = call.settings
            parts = () if work == EVERYTHING else sorted(work.parts) or ("api",)
            title = " ".join(["gesta", version("gesta"), *parts])
            tell(f"{title} works on {scrub(settings.url)} (url from {settings.sources['url']})")
            tell(f"flows: {', '.join(sorted(flows)) or 'none'}")
            if others := sorted(flow.name for flow in engine.flows.values() if flow.is_external):
                tell(f"executed by others: {', '.join(others)}")
            await _tell_of_strangers(engine, work)
            if engine.subscriptions and "projector" in work.parts:
                tell(f"subscriptions: {', '.join(sorted(engine.subscriptions))}")
            for missing in left_out(settings):
                engine.pipeline.telemetry.channel_left_out(missing)
            async with AsyncExitStack() as stack:
                if api is not None:
                    await stack.enter_async_context(api_port(engine, settings, api.host, api.port))
                tell("ready; Ctrl-C stops it")
                await stop.wait()
            running = engine.pipeline.pool.in_flight
            tell(
                f"stopping; attempts that may end first: {running} (Ctrl-C cuts them)"
                if running
                else "stopping"
            )
        tell("stopped")


async def _tell_of_strangers(engine: Engine, work: Work) -> None:
    """A worker without a flow would leave that flow's jobs where they are, and look well doing
    so.
    """
    from gesta.cli.flows import how_to_get
    from gesta.ports.job_queue import by_flow

    if "worker" not in work.parts or work.flows:
        return
    for name, backlog in sorted(
        by_flow(await engine.pipeline.environment.stores.job_inspection.backlog()).items()
    ):
        count = backlog.ready + backlog.waiting
        if count and name not in engine.flows:
            remedy = how_to_get(name, engine.settings)
            tell(
                f"left alone: {count} of {name}, a flow that is not declared here; {remedy}",
                "yellow",
            )


@asynccontextmanager
async def api_port(
    engine: Engine, settings: Settings, host: str | None, port: int | None
) -> AsyncIterator[None]:
    """Answer for as long as the body runs.

    Raises where the port is taken: whoever calls it would reach another server, with another's
    keys.
    """
    from gesta.http_api.app import Web
    from gesta.http_api.server import address_of, bind, serving

    listener = bind(host or settings.api_host, settings.api_port if port is None else port)
    web = Web(engine)
    async with serving(web, listener):
        tell(f"api: {address_of(listener)}/v1")
        if is_loopback(listener.getsockname()[0]):
            if (path := await web.offer_first_key()) is not None:
                tell(
                    "no admin key yet; for the next hour this link makes the first one:"
                    f" {address_of(listener)}{path}"
                )
        else:
            tell(
                "note: this is plain HTTP beyond this machine; keys travel in clear unless a proxy"
                " in front of it speaks TLS"
            )
        yield


def is_loopback(host: str) -> bool:
    return ip_address(host).is_loopback


@asynccontextmanager
async def health_port(port: int | None, host: str) -> AsyncIterator[ProcessHealth]:
    """Answer for as long as the body runs: from before the engine starts until it has stopped.

    Without a port nobody is answered.
    """
    from gesta.engine.health import ProcessHealth

    health = ProcessHealth()
    if port is None:
        yield health
        return
    from gesta.http_api.health import HealthApp
    from gesta.http_api.server import address_of, bind, serving

    listener = bind(host, port, "--health-port", "choose another one")
    async with serving(HealthApp(health), listener):
        tell(f"health: {address_of(listener)}/ready")
        yield health
