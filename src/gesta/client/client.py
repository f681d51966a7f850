"""The client for programs with an event loop."""

from __future__ import annotations

from typing import Self

from gesta.client.access import AccessCalls
from gesta.client.admin import UpkeepCalls
from gesta.client.connection import ATTEMPTS, Connection
from gesta.client.requests import RequestCalls
from gesta.client.subscriptions import ToldCalls
from gesta.client.work import WorkCalls
from gesta.errors import BadSettings
from gesta.runtime import settings as process_settings
from gesta.runtime.clock import Runtime, SystemRuntime


class Client(RequestCalls, UpkeepCalls, AccessCalls, ToldCalls, WorkCalls):
    """One server, one key, and with it one tenant. To be used in one event loop, and closed
    there.
    """

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        attempts: int = ATTEMPTS,
        runtime: Runtime | None = None,
    ) -> None:
        """Without them, server and key are the settings `server` and `api_key`: GESTA_SERVER,
        GESTA_API_KEY or gesta.toml.
        """
        server, key = _known(server, key)
        super().__init__(
            Connection(server, key, timeout_seconds, max(1, attempts), runtime or SystemRuntime())
        )

    def __repr__(self) -> str:
        return f"Client({self.line.server!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.line.close()


def _known(server: str | None, key: str | None) -> tuple[str, str]:
    if server is not None and key is not None:
        return server, key
    loaded = process_settings.load()
    server, key = server or loaded.server, key or loaded.api_key
    if server is None:
        raise BadSettings(
            "server: no server is named; pass one, or set GESTA_SERVER to an address like"
            " http://127.0.0.1:8420"
        )
    if key is None:
        raise BadSettings(
            "api_key: no key is given; pass one, or set GESTA_API_KEY. `gesta key create` makes one"
        )
    return server, key
