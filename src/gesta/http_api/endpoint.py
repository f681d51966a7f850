"""Handles one call: key, rate limit, body, handler, answer. Plain ASGI, because every call passes
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.engine.engine import Engine
from gesta.errors import Forbidden, GestaError
from gesta.http_api.problem import Problem, problem_of
from gesta.http_api.reading import (
    CallerGone,
    Exchange,
    Headers,
    body_at_once,
    check_actor,
    decode_body,
    decode_query,
    exchange_of,
    read_body,
    refuse_body,
)
from gesta.http_api.route import JSON, Answer, Call, Receive, Route, Stream
from gesta.runtime.clock import Timer, spawn
from gesta.tenants.api_keys import Grant

if TYPE_CHECKING:
    from gesta.http_api.app import Web

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Scope = Mapping[str, Any]
#: The grant of a caller of a route that needs no key.
OPEN = Grant(key_id="", tenant="", scopes=frozenset(), name="", is_test=False, expires_ms=None)
#: How long a caller may take to send a body.
BODY_SECONDS = 20.0
#: On every answer: no caching, no guessing of the content type.
ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
#: How many keys' rates are remembered. A forgotten key starts with a full bucket.
KEYS_MAX = 10_000


class Endpoint:
    """Serves one route."""

    def __init__(self, route: Route, web: Web) -> None:
        self.route, self._web = route, web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits: list[tuple[bytes, bytes]] = []
        exchange = exchange_of(scope)
        try:
            answer = await self._answer(scope, receive, limits, exchange)
        except CallerGone:
            return
        except Problem as problem:
            answer = problem.answer()
        except Forbidden as denied:
            answer = Problem(
                401, "key_refused", str(denied), headers={"WWW-Authenticate": "Bearer"}
            ).answer()
        except GestaError as error:
            if self._web.grant is not None:
                raise
            expected = problem_of(error)
            answer = self._unexpected(error) if expected is None else expected.answer()
        except Exception as error:  # whatever it is, the caller gets an answer and the log the rest
            if self._web.grant is not None:
                raise
            answer = self._unexpected(error)
        if isinstance(answer, Stream):
            await send_stream(answer, receive, send)
        else:
            await send_answer(answer, send, limits, exchange)

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        limits: list[tuple[bytes, bytes]],
        exchange: Exchange | None,
    ) -> Answer | Stream:
        route, web = self.route, self._web
        if not web.engine.is_running:
            raise Problem(
                503, "not_running", "the engine is not running", headers={"Retry-After": "1"}
            )
        pipeline = web.engine.pipeline
        headers = Headers(scope["headers"])
        grant = OPEN if route.scope is None else web.grant or await self._grant(headers)
        if grant is not OPEN:
            # Before the body is read: an invalid call costs as much as a valid one.
            self._weigh(grant, 1, limits)
        if route.method != "GET" and grant is not OPEN:
            check_actor(headers)
        query = decode_query(scope["query_string"], route)
        params = scope.get("path_params", {})
        raw, body = b"", None
        if route.method != "GET":
            inline = body_at_once(exchange, headers, route)
            raw = await self._read(receive) if inline is None else inline
            if route.body is not None:
                beside = (
                    None
                    if route.also is None
                    else partial(route.also, web.engine, grant.tenant, params)
                )
                body = await decode_body(raw, headers, route, beside)
            elif route.takes == JSON:
                refuse_body(raw)
        if route.weighs is not None:
            self._weigh(grant, min(route.weighs(body), web.rates.burst) - 1, limits)
        peer = scope.get("client")
        call = Call(
            web,
            pipeline,
            grant,
            params,
            query,
            body,
            headers,
            scope.get("root_path", ""),
            raw,
            lambda work: while_there(work, receive),
            peer[0] if peer else "",
            scope.get("scheme", "http"),
        )
        return await route.handler(call)

    async def _grant(self, headers: Headers) -> Grant:
        """The grant of the key that was sent; raises where it is missing or lacks the scope."""
        kind, _, text = (headers("authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not text:
            detail = "send a key: Authorization: Bearer gesta_…; " + (
                self.route.without_key or "`gesta key create` creates one"
            )
            raise Problem(401, "key_missing", detail, headers={"WWW-Authenticate": "Bearer"})
        grant = await self._web.engine.pipeline.keys.check(text.strip())
        scope = self.route.scope
        assert scope is not None
        if scope != "any" and not grant.allows(scope):
            detail = (
                f"this call needs a key with the scope {scope}, this one has"
                f" {', '.join(sorted(grant.scopes))}; create one with --scope {scope}"
            )
            if grant.is_test:
                detail += ". A test key has at most the scopes read and submit"
            raise Problem(403, "scope_missing", detail)
        return grant

    def _weigh(self, grant: Grant, weight: int, limits: list[tuple[bytes, bytes]]) -> None:
        """Count the call against the rate of its key; the headers carry the rest."""
        if self._web.grant is not None:
            return
        rates = self._web.rates
        left, wait = rates.take(grant.key_id, weight, self._web.engine.pipeline.runtime.monotonic())
        limits[:] = ((b"ratelimit-limit", rates.limit), (b"ratelimit-remaining", b"%d" % left))
        if wait:
            limits.append((b"ratelimit-reset", b"%d" % wait))
            raise Problem(
                429,
                "rate_limited",
                f"the rate limit of this key is reached; try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )

    async def _read(self, receive: Receive) -> bytes:
        patience = self._web.patience
        reading = patience.begin()
        try:
            return await read_body(receive, self.route)
        except asyncio.CancelledError:
            if not patience.is_over(reading):
                raise
            raise Problem(
                408,
                "too_slow",
                f"the body did not arrive within {BODY_SECONDS:g} s",
                headers={"Connection": "close"},
            ) from None
        finally:
            patience.end(reading)

    def _unexpected(self, error: Exception) -> Answer:
        self._web.engine.pipeline.telemetry.crashed(f"web {self.route.name}", error)
        return Problem(
            500, "internal_error", "an unexpected error; the log has the details"
        ).answer()


class Patience:
    """Cancels tasks that read a body for too long.

    One timer serves all of them. It runs only while a task reads: most bodies arrive with their
    headers.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Reading task → its deadline.
        self._until: dict[asyncio.Task[Any], float] = {}
        self._cut: set[asyncio.Task[Any]] = set()
        self._timer: Timer | None = None

    def begin(self) -> asyncio.Task[Any]:
        task = asyncio.current_task()
        assert task is not None
        runtime = self._engine.pipeline.runtime
        self._until[task] = runtime.monotonic() + BODY_SECONDS
        if self._timer is None:
            self._timer = runtime.call_later(BODY_SECONDS, self._look)
        return task

    def is_over(self, task: asyncio.Task[Any]) -> bool:
        return task in self._cut

    def end(self, task: asyncio.Task[Any]) -> None:
        self._until.pop(task, None)
        if task in self._cut:
            self._cut.discard(task)
            task.uncancel()

    def _look(self) -> None:
        self._timer = None
        if not self._engine.is_running:
            return
        runtime = self._engine.pipeline.runtime
        now = runtime.monotonic()
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            self._cut.add(task)
            task.cancel()
        if self._until:
            self._timer = runtime.call_later(min(self._until.values()) - now, self._look)


async def while_there(work: Awaitable[Any], receive: Receive) -> Any:
    """The result of the work, which is cancelled when the caller disconnects."""
    task = spawn(_awaited(work), "gesta-web-work")
    watch = spawn(_gone(receive, task), "gesta-web-watch")
    try:
        return await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            task.cancel()
            raise
        raise CallerGone from None
    finally:
        watch.cancel()


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


async def _gone(receive: Receive, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()


async def send_answer(
    answer: Answer,
    send: Send,
    limits: Sequence[tuple[bytes, bytes]] = (),
    exchange: Exchange | None = None,
) -> None:
    body = answer.body
    raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    headers = (
        [*ALWAYS, *limits]
        if answer.status == 204
        else [(b"content-length", b"%d" % len(raw)), *ALWAYS, *limits]
    )
    if body is not None:
        headers.append((b"content-type", answer.media_type.encode()))
    # A problem may close the connection, and the server refuses unprintable headers: both go
    # through ASGI.
    is_plain = answer.status < 400
    if answer.headers:
        headers += [
            (name.lower().encode(), value.encode("latin-1", "replace"))
            for name, value in answer.headers.items()
        ]
        is_plain = is_plain and "".join(answer.headers.values()).isprintable()
    if exchange is not None and is_plain and exchange.answer(answer.status, headers, raw):
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


async def send_stream(stream: Stream, receive: Receive, send: Send) -> None:
    """Send parts as they come, until the caller disconnects."""
    headers = [
        (b"content-type", stream.media_type.encode()),
        (b"x-accel-buffering", b"no"),
        *ALWAYS,
    ]

    async def all_parts() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for part in stream.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    try:
        await while_there(all_parts(), receive)
    except CallerGone:
        return


class KeyRates:
    """A token bucket per key, in this process."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self.burst = max(1, round(per_second * 2))
        #: The value of the header RateLimit-Limit.
        self.limit = b"%d" % self.burst
        #: Key → tokens left, and when they were counted.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key_id: str, weight: int, now: float) -> tuple[int, int]:
        """The tokens left, and the seconds until the call would be accepted; 0: it is accepted."""
        left, at = self._buckets.get(key_id, (float(self.burst), now))
        left = min(float(self.burst), left + (now - at) * self._per_second)
        # A batch that is larger than the bucket takes a full bucket, so that it is accepted
        # eventually.
        needed = min(weight, self.burst)
        if needed > left:
            return 0, max(1, ceil((needed - left) / self._per_second))
        if len(self._buckets) >= KEYS_MAX and key_id not in self._buckets:
            self._buckets.clear()
        self._buckets[key_id] = left - needed, now
        return int(left - needed), 0
