"""The health of a process over HTTP, for those who start and watch it: GET /live, /ready,
/metrics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.output import tell

if TYPE_CHECKING:
    from aiohttp import web

    from gesta.engine.health import ProcessHealth

_PANEL = "Health"
HOST = "127.0.0.1"
#: Whoever still reads an answer when the process ends is not waited for. Zero would mean: for as
#: long as it takes.
SHUTDOWN_SECONDS = 0.1

HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        min=0,
        max=65535,
        metavar="PORT",
        help="Answer GET /live, /ready and /metrics on this port; 0 takes a free one.",
        rich_help_panel=_PANEL,
    ),
]
HealthHost = Annotated[
    str,
    typer.Option(
        "--health-host", metavar="HOST", help="The address of that port.", rich_help_panel=_PANEL
    ),
]


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
    from aiohttp import web

    from gesta.errors import BadInput

    runner = web.AppRunner(
        _app(health), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, handler_cancellation=True
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise BadInput(
                f"--health-port {port} on {host}: {error.strerror or error}; choose another one"
            ) from None
        tell(f"health: http://{_shown(host)}:{runner.addresses[0][1]}/ready")
        yield health
    finally:
        await runner.cleanup()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _app(health: ProcessHealth) -> web.Application:
    import msgspec
    from aiohttp import web

    def answer(word: str, wrong: dict[str, str]) -> web.Response:
        body = msgspec.json.encode({word: not wrong, "wrong": wrong})
        return web.Response(
            body=body, status=503 if wrong else 200, content_type="application/json"
        )

    async def live(_: web.Request) -> web.Response:
        return answer("live", health.not_live())

    async def ready(_: web.Request) -> web.Response:
        return answer("ready", await health.not_ready())

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=health.metrics(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    app = web.Application()
    app.router.add_get("/live", live)
    app.router.add_get("/ready", ready)
    app.router.add_get("/metrics", metrics)
    return app
