"""Where a command is executed: by a running server, or by the API in this process, on the store.

Commands use the client in both cases. Commands that need the store itself ask for the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode

from gesta.api_types.requests import Whole
from gesta.api_types.structs import PAGE_MAX, ListOf, ListOfReasons
from gesta.cli.output import tell
from gesta.client import Client
from gesta.client.clock import SystemClock
from gesta.client.connection import Ask, Connection, Json, content_of, query_of
from gesta.domain.ids import REQUEST_ID
from gesta.errors import BadInput, NotFound

if TYPE_CHECKING:
    from gesta.admin.wording import Target
    from gesta.cli.invocation import Invocation
    from gesta.engine.engine import Engine
    from gesta.http_api.app import Web
    from gesta.ports.read_model import View

T = TypeVar("T")
#: How many requests with one key are named.
MANY = 10
NOT_A_TENANTS = (
    "this affects all tenants, so a server does not accept it from one tenant; run it on the"
    " store, without the setting `server`"
)


class InProcess(Connection):
    """Calls the API of this process without a socket. The first call opens the store: errors in a
    payload or a kind of config are reported before a store is created.
    """

    loses_answers = False

    def __init__(self, opened: Callable[[], Awaitable[Web]]) -> None:
        self.server, self.clock, self._attempts = "this process", SystemClock(), 1
        self._session = None
        self._opened_web = opened

    async def exchange(self, ask: Ask) -> bytes:
        headers, body = content_of(ask)
        status, parts = 0, []

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        scope = _scope(ask.method, ask.path, query_of(ask), headers)
        await (await self._opened_web())(scope, _receive(body or b""), send)
        raw = b"".join(parts)
        if status < 300:
            return raw
        raise self.refusal(status, raw, None)

    async def stream(self, ask: Ask) -> AsyncGenerator[bytes]:
        from gesta.runtime.clock import all_ended, spawn

        headers, body = content_of(ask)
        chunks: asyncio.Queue[bytes] = asyncio.Queue()
        status = 0

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            chunks.put_nowait(message.get("body", b""))

        web = await self._opened_web()
        scope = _scope(ask.method, ask.path, query_of(ask), headers)
        answering = spawn(web(scope, _receive(body or b""), send), "gesta-api")
        answering.add_done_callback(lambda _: chunks.put_nowait(b""))
        try:
            while not answering.done() or not chunks.empty():
                if chunk := await chunks.get():
                    if status != 200:
                        raise self.refusal(status, chunk, None)
                    yield chunk
            answering.result()
        finally:
            answering.cancel()
            # What it records about its end needs the store, which is closed after this.
            await all_ended([answering])


def _scope(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "query_string": urlencode(query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


def _receive(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    """The body, once; the caller never disconnects."""
    left: list[dict[str, Any]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        return left.pop() if left else await asyncio.get_running_loop().create_future()

    return receive


class Backend:
    """The client of one command. `open_store` returns the engine, if this process opens the
    store.
    """

    def __init__(
        self,
        call: Invocation,
        client: Client,
        *,
        tenant: str | None = None,
        engine: Engine | None = None,
        open_store: Callable[[], Awaitable[Engine]] | None = None,
    ) -> None:
        self.call, self.client, self.engine = call, client, engine
        self._tenant, self._open_store = tenant, open_store

    @property
    def tenant(self) -> str:
        return self.call.tenant_name if self._tenant is None else self._tenant

    def now_ms(self) -> int:
        """By the clock of the store, if this process has opened it."""
        if self.engine is not None and self.engine.is_running:
            return self.engine.pipeline.runtime.now_ms()
        return self.client.line.clock.now_ms()

    async def store(self, what: str) -> Engine:
        """The engine, for commands that affect every tenant; a server refuses those."""
        if self._open_store is None:
            raise BadInput(f"{what}: {NOT_A_TENANTS}")
        return await self._open_store()

    async def request(self, named: str, flow: str | None = None) -> Whole:
        """The request that is named by its id or by its key, of `flow` if that is given.

        Raises NotFound.
        """
        try:
            return await self.client.get(named, flow=flow)
        except NotFound as error:
            found = {
                one.id: one async for one in self.client.find(key=named, flow=flow, limit=MANY)
            }
            one = found[_only(list(found), named, self.tenant, error)]
            return await self.client.get(one.id, flow=one.flow)

    async def decidable(self, named: str, flow: str | None = None) -> Whole:
        """A request to decide about; the decision needs the rules of its flow."""
        found = await self.request(named, flow)
        if found.payload is None and self.engine is not None:
            from gesta.cli.flows import how_to_get

            raise BadInput(
                f"request {found.id} is of flow {found.flow!r}, which is not declared here;"
                f" {how_to_get(found.flow, self.engine.settings)}"
            )
        return found

    async def page(
        self, *parts: str, answer: type[ListOf[T]], query: Json, limit: int, cursor: str | None
    ) -> tuple[list[T], str | None]:
        """Up to `limit` items from a cursor on, and the cursor of those that follow."""
        items: list[T] = []
        while True:
            size = min(PAGE_MAX, limit - len(items))
            got = await self.client.read(
                *parts, answer=answer, query={**query, "limit": size, "cursor": cursor}
            )
            items, cursor = [*items, *got.items], got.next
            if cursor is None or len(items) >= limit:
                return items, cursor

    async def others(self, *parts: str, query: Json) -> str:
        """The reasons that are there, for a list that is empty because no request has the one in
        the query. Empty: it is empty for another cause.
        """
        answer = ListOfReasons[Any]
        found = await self.client.read(*parts, answer=answer, query={**query, "limit": 1})
        named = [f"{one.reason} of {one.flow} ({one.count})" for one in found.others or ()]
        is_group = bool(named) and query.get("reason") == "other"
        group = "; alerts and metrics call the reasons of your own flows `other`" * is_group
        return f"; there are: {', '.join(named)}{group}" if named else ""

    async def idle(self) -> str:
        """Why a request will wait: no process works on the store. Empty if one does, or if a server
        executes the command.
        """
        if self._open_store is None or await (await self._open_store()).admin.is_worked_on():
            return ""
        return _start_a_server(self.call.place)

    async def warn_if_idle(self) -> None:
        if idle := await self.idle():
            tell(idle, "yellow")

    async def warn_of_lag(self) -> None:
        """Warn if the views, which a list shows, lag behind and will not catch up."""
        if self._open_store is None:
            return
        admin = (await self._open_store()).admin
        unseen = await admin.unseen()
        if unseen and not await admin.is_worked_on():
            advice = _start_a_server(self.call.place)
            tell(f"newer events that this list does not show yet: {unseen}; {advice}", "yellow")


def _start_a_server(place: Target) -> str:
    return f"no projector is running on this store; start `{place.process('serve')}`"


async def find_view(engine: Engine, named: str, tenant: str) -> View:
    """A request of any flow that the tenant has ever used, named by its id or its key; raises
    NotFound.
    """
    try:
        return await engine.admin.look_up(named, tenant)
    except NotFound as error:
        found = {
            view.state.id: view for view in await engine.find(key=named, tenant=tenant, limit=MANY)
        }
        return found[_only(list(found), named, tenant, error)]


def _only(ids: list[str], named: str, tenant: str, error: NotFound) -> str:
    if not ids and not REQUEST_ID.fullmatch(named):
        raise NotFound(
            "request", named, f" ({tenant}), by id or by key; for another tenant pass --tenant NAME"
        )
    if not ids:
        raise error
    if len(ids) > 1:
        raise BadInput(
            f"the key {named!r} belongs to several requests: {', '.join(ids)}; give the id of one."
            " Flows, and test and live requests, have keys of their own; retry, cancel, redrive and"
            " resolve take --flow beside the key"
        )
    return ids[0]
