"""All routes of the API and the application that serves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from gesta.engine.engine import Engine
from gesta.engine.health import ProcessHealth
from gesta.http_api import (
    admin,
    bulk,
    configs,
    decisions,
    description,
    first_key,
    health,
    inbound,
    keys,
    reports,
    requests,
    stream,
    subscriptions,
    templates,
    transactions,
    work,
)
from gesta.http_api.description import Description
from gesta.http_api.endpoint import Endpoint, KeyRates, Patience, send_answer
from gesta.http_api.first_key import FirstKey
from gesta.http_api.problem import Problem
from gesta.http_api.route import Route
from gesta.tenants.api_keys import Grant

#: The modules with the routes. The router searches them in this order, so frequent ones come first.
TABLE = (
    requests,
    inbound,
    decisions,
    transactions,
    bulk,
    work,
    stream,
    health,
    admin,
    configs,
    templates,
    keys,
    first_key,
    reports,
    subscriptions,
    description,
)
#: The maximum body of a call from this process.
LOCAL_BYTES_MAX = 16 * 1024 * 1024
ROUTES: list[Route] = [route for part in TABLE for route in part.ROUTES]


class Web:
    """The API of one engine.

    With a `grant` it serves only calls of this process, without a key or a rate limit, in the name
    of the grant. Errors of the engine are raised to such a caller unchanged.
    """

    def __init__(self, engine: Engine, *, grant: Grant | None = None) -> None:
        self.engine, self.grant = engine, grant
        self.rates = KeyRates(engine.settings.api_rate)
        #: Tenant → number of open streams.
        self.streams: Counter[str] = Counter()
        #: Tenant → number of active bulk runs.
        self.bulk_runs: Counter[str] = Counter()
        #: The offer of a first admin key, if this process has one.
        self.first_key: FirstKey | None = None
        #: Tenant → number of previews being rendered.
        self.previews: Counter[str] = Counter()
        self.health = ProcessHealth()
        self.patience = Patience(engine)
        routes = ROUTES
        if grant is not None:
            routes = [replace(one, body_bytes_max=LOCAL_BYTES_MAX) for one in ROUTES]
        answering = {
            path: _Methods([r for r in routes if r.path == path], self)
            for path in dict.fromkeys(route.path for route in routes)
        }
        #: Endpoints of paths without parameters, found without the router: most calls are submits.
        self._inline = {
            (method, path): end
            for path, one in answering.items()
            if "{" not in path
            for method, end in one.endpoints.items()
        }
        # A router without a Starlette application around it: endpoints handle every error
        # themselves.
        self._router = Router(
            [StarletteRoute(path, methods) for path, methods in answering.items()],
            redirect_slashes=False,
            default=_not_found,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application, at the root or mounted."""
        known = None
        if scope["type"] == "http" and not scope.get("root_path"):
            known = self._inline.get((scope["method"], scope["path"]))
        await (self._router if known is None else known)(scope, receive, send)

    async def offer_first_key(self) -> str | None:
        """Path and query of a link that makes the first admin key; None when one exists."""
        pipeline = self.engine.pipeline
        if await pipeline.keys.any_admin():
            return None
        self.first_key = FirstKey(pipeline, self.engine.settings.tenant)
        return self.first_key.path

    @cached_property
    def description(self) -> Description:
        """Built at its first use."""
        return Description(ROUTES, self.engine.flows)


class _Methods:
    """The endpoints of one path, by method."""

    def __init__(self, routes: Sequence[Route], web: Web) -> None:
        self.endpoints = {route.method: Endpoint(route, web) for route in routes}
        self._allowed = ", ".join(sorted(self.endpoints))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoints.get(scope["method"])
        if endpoint is None:
            detail = f"{scope['method']} is not allowed here; allowed: {self._allowed}"
            await send_answer(
                Problem(
                    405, "method_not_allowed", detail, headers={"Allow": self._allowed}
                ).answer(),
                send,
            )
            return
        await endpoint(scope, receive, send)


async def _not_found(scope: Scope, _: Receive, send: Send) -> None:
    detail = f"no route {scope['path']}; GET /openapi.json lists all routes"
    await send_answer(Problem(404, "no_route", detail).answer(), send)


class Mounted:
    """The API inside another application: FastAPI, Starlette, Litestar, or none."""

    def __init__(self, engine: Engine) -> None:
        self._app = Web(engine)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/") and scope["path"] != "/":
            scope = placed(scope)
        await self._app(scope, receive, send)


def placed(scope: Scope) -> Scope:
    """Litestar appends a slash to the path and leaves `root_path` out; the raw path has both."""
    path, root = scope["path"].rstrip("/"), scope.get("root_path", "")
    sent = scope.get("raw_path", b"").decode("ascii", "replace").partition("?")[0].rstrip("/")
    if not root and sent != path and sent.endswith(path):
        root = sent.removesuffix(path)
        path = sent
    return {**scope, "path": path or "/", "root_path": root}
