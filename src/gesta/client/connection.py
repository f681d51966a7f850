"""Makes one call of the API and repeats it where that is safe, with exponential backoff and full
jitter.

A repeatable call carries a key or changes nothing the second time. It is repeated after a lost
connection, 429 and 5xx. Any other call is repeated only where it certainly had no effect.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from errno import ECONNREFUSED
from math import inf
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from gesta.api_types.requests import ACTOR
from gesta.api_types.structs import PAGE_MAX, ListOf
from gesta.client.clock import Clock, sleep
from gesta.client.problems import NOTHING_DONE, error_of, read_problem
from gesta.errors import BadInput, GestaError, Unreachable

T = TypeVar("T")
Json = dict[str, Any]

#: Maximum number of times that a call is made.
ATTEMPTS = 6
#: The first ceiling of the backoff; it doubles with each attempt.
PAUSE_SECONDS = 0.2
PAUSE_SECONDS_MAX = 10.0
#: A longer Retry-After raises the error instead of waiting.
PATIENCE_SECONDS = 60.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
#: The server sends a heartbeat every 15 s.
SILENCE_SECONDS = 45.0


@dataclass(frozen=True)
class Ask:
    """A call. `is_repeatable`: making it twice has the same effect as making it once."""

    method: str
    path: str
    is_repeatable: bool
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: How long the server was asked to hold its answer back.
    wait_seconds: float = 0.0
    #: It is not repeated later than this after the first call.
    patience_seconds: float = inf


class Connection:
    """The connection to one server with one key. The key is in no error text."""

    #: Whether a call may have had its effect although its answer was lost.
    loses_answers = True

    def __init__(
        self, server: str, key: str, *, timeout_seconds: float, attempts: int, clock: Clock
    ) -> None:
        self.server, self._key = _checked_server(server), _checked_key(key)
        self.timeout_seconds, self._attempts, self.clock = timeout_seconds, attempts, clock
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Connection({self.server})"

    async def ask(self, ask: Ask, answer: type[T]) -> T:
        """The answer as its type; raises an error of gesta.errors."""
        raw = await self._until_answered(ask)
        if answer is type(None):
            return answer()
        try:
            return msgspec.json.decode(raw, type=answer)
        except msgspec.DecodeError:
            raise Unreachable(
                f"{self.server} answers {ask.path}, but not as gesta does; check the address"
            ) from None

    async def _until_answered(self, ask: Ask) -> bytes:
        number, until = 1, self.clock.monotonic() + ask.patience_seconds
        while True:
            try:
                return await self.exchange(ask)
            except Again as again:
                pause = self._pause(number, again.retry_after_seconds)
                if (
                    pause is None
                    or self.clock.monotonic() + pause > until
                    or number >= self._attempts
                    or not (ask.is_repeatable or again.is_undone)
                ):
                    raise again.error from None
            await sleep(self.clock, pause)
            number += 1

    async def exchange(self, ask: Ask) -> bytes:
        """One call without repetition; returns the body of the answer."""
        limit = aiohttp.ClientTimeout(
            total=self.timeout_seconds + ask.wait_seconds, sock_connect=CONNECT_SECONDS
        )
        try:
            async with self._request(ask, limit) as answer:
                raw = await _bounded(answer)
                status, after = answer.status, _seconds(answer.headers.get("Retry-After"))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(self.server, ask, error) from None
        if status < 300:
            return raw
        raise self.refusal(status, raw, after)

    def refusal(self, status: int, raw: bytes, after: float | None) -> Exception:
        """The error for an answer that is not a success; Again where a repetition may help."""
        if status < 400:
            return Unreachable(
                f"{self.server} redirects"
                f" elsewhere ({status}); use that address directly: the client does not send a key"
                " to another address"
            )
        problem = read_problem(status, raw, self.server)
        error = error_of(problem, after)
        if status == 429 or status >= 500 or problem.code in NOTHING_DONE:
            return Again(error, is_undone=problem.code in NOTHING_DONE, retry_after_seconds=after)
        return error

    def _pause(self, number: int, retry_after_seconds: float | None) -> float | None:
        """How long to wait; None when the server asks for more than PATIENCE_SECONDS."""
        spread = self.clock.chance() * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << number))
        if retry_after_seconds is None:
            return spread
        # Jitter keeps callers that were refused together from returning together.
        return retry_after_seconds + spread if retry_after_seconds <= PATIENCE_SECONDS else None

    async def stream(self, ask: Ask) -> AsyncGenerator[bytes]:
        """A long answer in parts, as they arrive; raises like `exchange`, also in the middle."""
        limit = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        try:
            async with self._request(ask, limit) as answer:
                if answer.status != 200:
                    after = _seconds(answer.headers.get("Retry-After"))
                    raise self.refusal(answer.status, await _bounded(answer), after)
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _lost(self.server, ask, error) from None

    def _request(
        self, ask: Ask, limit: aiohttp.ClientTimeout
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            # Here, since it belongs to the event loop of the first call.
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": "gesta-client"}, cookie_jar=aiohttp.DummyCookieJar()
            )
        headers, data = content_of(ask)
        return self._session.request(
            ask.method,
            self.server + ask.path,
            params=query_of(ask),
            data=data,
            headers={"Authorization": f"Bearer {self._key}", **headers},
            timeout=limit,
            allow_redirects=False,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Again(Exception):
    """The call failed and a repetition may help. `is_undone`: it certainly had no effect."""

    def __init__(
        self, error: GestaError, *, is_undone: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__()
        self.error, self.is_undone, self.retry_after_seconds = error, is_undone, retry_after_seconds


def _lost(server: str, ask: Ask, error: Exception) -> Again:
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return Again(Unreachable(f"{server} cannot be reached: {_why(error)}"), is_undone=True)
    text = (
        f"{server} gave no answer to {ask.method} {ask.path}: {_why(error)}; it may have been"
        " executed"
    )
    return Again(Unreachable(text), is_undone=False)


def content_of(ask: Ask) -> tuple[dict[str, str], bytes | None]:
    if ask.body is None:
        return dict(ask.headers), None
    return {**ask.headers, "Content-Type": "application/json"}, msgspec.json.encode(ask.body)


def query_of(ask: Ask) -> dict[str, str]:
    return {name: _text(value) for name, value in ask.query.items() if value is not None}


def path_of(*parts: str) -> str:
    """The path below /v1, with every part quoted."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    parts, length = [], 0
    async for part in answer.content.iter_chunked(256 * 1024):
        length += len(part)
        if length > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError("the answer is incomplete")
        parts.append(part)
    return b"".join(parts)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _why(error: BaseException) -> str:
    """A short cause without anything that was sent."""
    if isinstance(error, TimeoutError):
        return "its time limit was reached"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name has no address"
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno == ECONNREFUSED:
        return "no server listens at this host and port; start one with: gesta serve"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _checked_server(server: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadInput(
            "server: it must begin with http:// or https://, for instance http://127.0.0.1:8420"
        )
    if parts.username is not None or parts.password is not None:
        raise BadInput("server: leave user and password out of the address; the API key is enough")
    return server.rstrip("/")


def _checked_key(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("api_key: this is not an API key; create one with: gesta key create")
    return key


class Calls:
    """The base of all groups of calls: read, change, iterate over pages."""

    def __init__(self, line: Connection) -> None:
        self.line = line

    def _new_key(self) -> str:
        return self.line.clock.random_bytes(16).hex()

    async def read(
        self,
        *parts: str,
        answer: type[T],
        query: Mapping[str, Any] | None = None,
        wait: float = 0.0,
        patience: float = inf,
    ) -> T:
        ask = Ask(
            "GET",
            path_of(*parts),
            is_repeatable=True,
            query=query or {},
            wait_seconds=wait,
            patience_seconds=patience,
        )
        return await self.line.ask(ask, answer)

    async def post(
        self,
        *parts: str,
        answer: type[T],
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        by: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
        wait: float = 0.0,
    ) -> T:
        """`repeat`: making the call twice has the same effect as making it once."""
        return await self.change(
            "POST",
            *parts,
            answer=answer,
            body=body,
            query=query,
            by=by,
            headers=headers,
            repeat=repeat,
            wait=wait,
        )

    async def change(
        self,
        method: str,
        *parts: str,
        answer: type[T],
        body: Json | None = None,
        query: Mapping[str, Any] | None = None,
        by: str | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        wait: float = 0.0,
    ) -> T:
        sent = dict(headers or {}) if by is None else {**(headers or {}), ACTOR: by}
        return await self.line.ask(
            Ask(method, path_of(*parts), repeat, query or {}, body, sent, wait), answer
        )

    async def pages(
        self,
        *parts: str,
        answer: type[ListOf[T]],
        query: Mapping[str, Any],
        limit: int | None = None,
    ) -> AsyncIterator[T]:
        """Item by item; each page is read when the one before is used up."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(PAGE_MAX, left)
            got = await self.read(
                *parts, answer=answer, query={**query, "limit": size, "cursor": cursor}
            )
            for item in got.items:
                yield item
            left = None if left is None else left - len(got.items)
            cursor = got.next
            if cursor is None:
                return

    async def rest(self) -> None:
        await sleep(self.line.clock, PAUSE_SECONDS * (1 + self.line.clock.chance()))
