"""The client for programs without an event loop: the same one, on a loop in a thread of its own.

So there is one way to retry, to page and to reconnect. The thread costs a few microseconds a call
beside the network, and the client works
wherever there is a loop already, too, as in a notebook.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from gesta.client.client import Client
from gesta.client.connection import ATTEMPTS
from gesta.runtime.clock import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def _done(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """The method, waited for."""

    @wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.run(method(self.client, *args, **kwargs))

    return call


def _each(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Iterator[T]]:
    """The method's items, each waited for."""

    @wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.loop.each(method(self.client, *args, **kwargs))

    return call


class SyncClient:
    """What `Client` does, without `await`. May be used by several threads at once."""

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout_seconds: float = 30.0,
        attempts: int = ATTEMPTS,
    ) -> None:
        self.client = Client(server, key, timeout_seconds=timeout_seconds, attempts=attempts)
        self.loop = LoopThread(self.client.line.runtime, "gesta-client")

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
    look_up = _done(Client.look_up)
    wait = _done(Client.wait)
    find = _each(Client.find)
    events = _done(Client.events)
    attempts = _done(Client.attempts)
    stream = _each(Client.stream)
    cancel = _done(Client.cancel)
    retry = _done(Client.retry)
    redrive = _done(Client.redrive)
    resolve = _done(Client.resolve)
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
    redrive_all = _done(Client.redrive_all)
    purge = _done(Client.purge)
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
    report_failed = _done(Client.report_failed)
    report_unknown = _done(Client.report_unknown)
