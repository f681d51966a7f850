"""Where a process answers HTTP: the options of `serve` and `api`, and the address they print."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.output import tell

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.runtime.settings import Settings

_PANEL = "API"

ApiPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="PORT",
        help="The API's port; 0 takes a free one. Without it, api_port.",
        rich_help_panel=_PANEL,
    ),
]
ApiHost = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="HOST",
        help="The API's address. Without it, api_host.",
        rich_help_panel=_PANEL,
    ),
]
NoApi = Annotated[bool, typer.Option("--no-api", help="Answer no HTTP.", rich_help_panel=_PANEL)]


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
