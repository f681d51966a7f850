"""serve, api, worker: processes that run until they are stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
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
        help="Port of the API; 0 picks a free one. Default: the setting api_port.",
        rich_help_panel=_API,
    ),
]
ApiHost = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="Address of the API. Default: the setting api_host.",
        rich_help_panel=_API,
    ),
]
NoApi = Annotated[bool, typer.Option("--no-api", help="Run without the API.", rich_help_panel=_API)]

_HEALTH = "Health"
HOST = "127.0.0.1"
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65535,
        metavar="PORT",
        help="Serve GET /live, /ready and /metrics on this port; 0 picks a free one.",
        rich_help_panel=_HEALTH,
    ),
]
HealthHost = Annotated[
    str,
    typer.Option(
        "--health-host", metavar="HOST", help="Address of the health port.", rich_help_panel=_HEALTH
    ),
]
OnlyFlows = Annotated[
    list[str] | None,
    typer.Option(
        "--flow",
        metavar="FLOW",
        help="Execute only this flow, or all of a kind: 'payment.*'. Repeatable.",
    ),
]
OnlyRoles = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="ROLES",
        help="Run only these of worker, projector and sweeper, e.g. worker or projector,sweeper.",
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
    r"""Run everything in one process: API, worker, projector and sweeper.

    Ctrl-C or SIGTERM stops it; running attempts finish first.

    Load your own flows from a program: gesta serve --app shop.jobs:engine. Without --app, the
    built-in flows run with the settings in gesta.toml: \[flows.webhook] and so on.
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
    """Run the HTTP API only. It accepts and shows requests; `gesta worker` executes them."""
    from gesta.engine.process_roles import NOTHING

    await _work(call, NOTHING, health_at, health_host, Api(host, port))


async def worker(
    call: Invocation,
    flow: OnlyFlows = None,
    roles: OnlyRoles = None,
    health_at: HealthPort = None,
    health_host: HealthHost = HOST,
) -> None:
    """Run everything except the API: worker, projector and sweeper.

    Run any number; they share the load. One process at a time holds the sweeper role, and on
    SQLite the projector role; another takes over within 5 s of its death.

    SIGTERM stops it within 30 s: running attempts finish, leased jobs that have not started are
    released.
    """
    await _work(call, _chosen(roles, tuple(flow or ())), health_at, health_host)


def _chosen(roles: str | None, flows: tuple[str, ...]) -> Work:
    """The roles of a worker process: those that `--roles` names, else all."""
    from gesta.engine.process_roles import EVERYTHING, Work

    names = EVERYTHING.parts if roles is None else frozenset(roles.replace(" ", "").split(","))
    if unknown := names - EVERYTHING.parts:
        raise typer.BadParameter(
            f"{', '.join(sorted(unknown)) or 'nothing'}: write worker, projector and sweeper,"
            " separated by commas",
            param_hint="--roles",
        )
    if flows and "worker" not in names:
        raise typer.BadParameter("needs the role worker", param_hint="--flow")
    return Work(EVERYTHING.parts & names, flows)


@dataclass(frozen=True)
class Api:
    """The address of the API; None: from the settings."""

    host: str | None
    port: int | None


async def _work(
    call: Invocation, work: Work, port: int | None, host: str, api: Api | None = None
) -> None:
    from gesta.cli.flows import left_out
    from gesta.runtime.redaction import scrub

    work = replace(work, serves_api=api is not None)
    engine = call.engine(work=work)
    flows = work.taken_of(engine.flows)
    async with StopSignal() as stop:
        async with (
            health_port(port, host) as health,
            call.opened(engine, create=True, is_server=True),
        ):
            health.watch(engine.pipeline)
            settings = call.settings
            tell(
                f"gesta {version('gesta')} ({', '.join(work.roles)}) on {scrub(settings.url)}"
                f" (url from {settings.sources['url']})"
            )
            tell(f"flows: {', '.join(sorted(flows)) or 'none'}")
            if others := sorted(flow.name for flow in engine.flows.values() if flow.is_external):
                tell(f"executed by external workers: {', '.join(others)}")
            await _warn_of_undeclared_flows(engine, work)
            if engine.subscriptions and "projector" in work.parts:
                tell(f"subscriptions: {', '.join(sorted(engine.subscriptions))}")
            for missing in left_out(settings):
                engine.pipeline.telemetry.channel_left_out(missing)
            async with AsyncExitStack() as stack:
                if api is not None:
                    await stack.enter_async_context(api_port(engine, settings, api.host, api.port))
                tell("ready; press Ctrl-C to stop")
                await stop.wait()
            running = engine.pipeline.pool.in_flight
            tell(
                f"stopping; running attempts that finish first: {running} (Ctrl-C kills them)"
                if running
                else "stopping"
            )
        tell("stopped")


async def _warn_of_undeclared_flows(engine: Engine, work: Work) -> None:
    """Without this line, jobs of a flow that this process does not declare would wait unnoticed."""
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
                f"not executed here: {count} jobs of {name}, a flow that this process does not"
                f" declare; {remedy}",
                "yellow",
            )


@asynccontextmanager
async def api_port(
    engine: Engine, settings: Settings, host: str | None, port: int | None
) -> AsyncIterator[None]:
    """Serve the API while the body runs. Raises if the port is taken."""
    from gesta.http_api.app import Web
    from gesta.http_api.server import address_of, bind, serving

    listener = bind(host or settings.api_host, settings.api_port if port is None else port)
    web = Web(engine)
    async with serving(web, listener):
        tell(f"api: {address_of(listener)}/v1")
        if ip_address(listener.getsockname()[0]).is_loopback:
            if (path := await web.offer_first_key()) is not None:
                tell(
                    "there is no admin key yet; open this link within an hour to create the first"
                    f" one: {address_of(listener)}{path}"
                )
        else:
            tell(
                "note: this port speaks plain HTTP and is reachable from other machines; put a TLS"
                " proxy in front of it, or API keys travel in clear text"
            )
        yield


@asynccontextmanager
async def health_port(port: int | None, host: str) -> AsyncIterator[ProcessHealth]:
    """Serve the health checks while the body runs: from before the engine starts until it has
    stopped.
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
