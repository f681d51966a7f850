"""`Client` for programs with an event loop, `SyncClient` for those without.

`SyncClient` runs `Client` on an event loop in its own thread, so retries, paging and reconnection
exist once. It also works beside a running loop, as in a notebook.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from importlib import import_module
from types import GenericAlias
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args

from gesta.client.admin import AdminCalls
from gesta.client.clock import Clock, LoopThread, SystemClock
from gesta.client.connection import ATTEMPTS, Connection
from gesta.client.requests import RequestCalls, WorkCalls
from gesta.errors import BadSettings

P = ParamSpec("P")
T = TypeVar("T")


class Client(RequestCalls, WorkCalls, AdminCalls):
    """Calls one server with one key, and so for one tenant. Use and close it in one event loop."""

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        attempts: int = ATTEMPTS,
        runtime: Clock | None = None,
        line: Connection | None = None,
    ) -> None:
        """Without arguments, server and key come from the settings `server` and `api_key`:
        GESTA_SERVER, GESTA_API_KEY or gesta.toml. `line` replaces the connection.
        """
        if line is None:
            server, key = _known(server, key)
            line = Connection(
                server,
                key,
                timeout_seconds=timeout_seconds,
                attempts=max(1, attempts),
                clock=runtime or SystemClock(),
            )
        super().__init__(line)

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
    # Imported by name, so that a program that passes both does not load the settings module.
    loaded = import_module("gesta.runtime.settings").load()
    server, key = server or loaded.server, key or loaded.api_key
    if server is None:
        raise BadSettings(
            "server: no server is set; pass one, or set GESTA_SERVER to an address like"
            " http://127.0.0.1:8420"
        )
    if key is None:
        raise BadSettings(
            "api_key: no key is set; pass one, or set GESTA_API_KEY. `gesta key create` creates one"
        )
    return server, key


def _done(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.run(method(self.client, *args, **kwargs))

    return call


def _each(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    @wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.loop.each(method(self.client, *args, **kwargs))

    # For help(): otherwise it shows the asynchronous iterator of the wrapped method.
    signature = inspect.signature(method, eval_str=True)
    (item, *_) = get_args(signature.return_annotation)
    returned = GenericAlias(Iterator, item)
    call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


class SyncClient:
    """`Client` without `await`. Several threads may use it at once."""

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.client = Client(server, key, timeout_seconds=timeout_seconds, attempts=attempts)
        self.loop = LoopThread(self.client.line.clock, "gesta-client")

    def __repr__(self) -> str:
        return f"Sync{self.client!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.loop.run(self.client.close())
        self.loop.close()

    submit = _done(Client.submit)
    submit_many = _done(Client.submit_many)
    get = _done(Client.get)
    wait = _done(Client.wait)
    find = _each(Client.find)
    events = _done(Client.events)
    attempts = _done(Client.attempts)
    stream = _each(Client.stream)
    cancel = _done(Client.cancel)
    retry = _done(Client.retry)
    redrive = _done(Client.redrive)
    resolve = _done(Client.resolve)
    capture = _done(Client.capture)
    post_reservation = _done(Client.post_reservation)
    refund = _done(Client.refund)
    void = _done(Client.void)
    reverse = _done(Client.reverse)
    transaction = _done(Client.transaction)
    reconcile = _done(Client.reconcile)
    config = _each(Client.config)
    config_kinds = _done(Client.config_kinds)
    get_config = _done(Client.get_config)
    put_config = _done(Client.put_config)
    delete_config = _done(Client.delete_config)
    try_endpoint = _done(Client.try_endpoint)
    preview_template = _done(Client.preview_template)
    try_template = _done(Client.try_template)
    dead_letters = _each(Client.dead_letters)
    dead_letter = _done(Client.dead_letter)
    purge = _done(Client.purge)
    bulk = _each(Client.bulk)
    resume_bulk = _each(Client.resume_bulk)
    unknown = _each(Client.unknown)
    pauses = _done(Client.pauses)
    pause = _done(Client.pause)
    resume = _done(Client.resume)
    erase = _done(Client.erase)
    flows = _done(Client.flows)
    counts = _done(Client.counts)
    quarantined = _done(Client.quarantined)
    whoami = _done(Client.whoami)
    keys = _done(Client.keys)
    create_key = _done(Client.create_key)
    revoke_key = _done(Client.revoke_key)
    audit = _each(Client.audit)
    suppressed = _each(Client.suppressed)
    suppress = _done(Client.suppress)
    find_suppressed = _done(Client.find_suppressed)
    unsuppress = _done(Client.unsuppress)
    subscriptions = _done(Client.subscriptions)
    forget_subscription = _done(Client.forget_subscription)
    take_work = _done(Client.take_work)
    get_work = _done(Client.get_work)
    extend_work = _done(Client.extend_work)
    report_sent = _done(Client.report_sent)
    report_completed = _done(Client.report_completed)
    report_failed = _done(Client.report_failed)
    report_unknown = _done(Client.report_unknown)
