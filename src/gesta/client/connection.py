"""One call of the API, made again where that is safe: a bounded number of times, with growing
pauses of random length.

A call that may be repeated, because it carries a key or changes nothing the second time, is
repeated after anything that may pass: a lost
connection, 429, 5xx. Any other call only where it is certain that nothing was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from gesta.client.problems import NOTHING_DONE, error_of, read_problem
from gesta.errors import BadInput, GestaError, Unreachable
from gesta.runtime.clock import Runtime, sleep

T = TypeVar("T")

#: How often a call is made at most.
ATTEMPTS = 6
#: The pause before the next attempt is a random part of this, doubled each time.
PAUSE_SECONDS = 0.2
PAUSE_SECONDS_MAX = 10.0
#: A server that wants to be left alone for longer is told about instead of being waited for.
PATIENCE_SECONDS = 60.0
CONNECT_SECONDS = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True)
class Ask:
    """A call as it is sent.

    `is_repeatable`: made twice, it does nothing that made once it does not.
    """

    method: str
    path: str
    query: Mapping[str, Any]
    body: Any
    headers: Mapping[str, str]
    is_repeatable: bool
    #: How long the server was asked to hold its answer back.
    wait_seconds: float = 0.0


class Connection:
    """The way to one server with one key. The key is in no text that this makes."""

    def __init__(
        self, server: str, key: str, timeout_seconds: float, attempts: int, runtime: Runtime
    ) -> None:
        self.server, self._key = _checked_server(server), _checked_key(key)
        self.timeout_seconds, self._attempts, self.runtime = timeout_seconds, attempts, runtime
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Line({self.server})"

    async def ask(self, ask: Ask, answer: type[T]) -> T:
        """The answer as its type; raises the error of gesta.errors that fits."""
        raw = await self._until_answered(ask)
        if answer is type(None):
            return answer()
        try:
            return msgspec.json.decode(raw, type=answer)
        except msgspec.DecodeError:
            raise Unreachable(f"{self.server} answers {ask.path}, but not as gesta does") from None

    async def _until_answered(self, ask: Ask) -> bytes:
        number = 1
        while True:
            try:
                return await self._exchange(ask)
            except _Again as again:
                pause = self._pause(number, again.retry_after_seconds)
                if (
                    pause is None
                    or number >= self._attempts
                    or not (ask.is_repeatable or again.is_undone)
                ):
                    raise again.error from None
            await sleep(self.runtime, pause)
            number += 1

    async def _exchange(self, ask: Ask) -> bytes:
        headers = {"Authorization": f"Bearer {self._key}", **ask.headers}
        data = None
        if ask.body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(ask.body), "application/json"
        limit = aiohttp.ClientTimeout(
            total=self.timeout_seconds + ask.wait_seconds, sock_connect=CONNECT_SECONDS
        )
        query = {name: _text(value) for name, value in ask.query.items() if value is not None}
        try:
            async with self.session.request(
                ask.method,
                self.server + ask.path,
                params=query,
                data=data,
                headers=headers,
                timeout=limit,
                allow_redirects=False,
            ) as answer:
                raw = await _bounded(answer)
                status, after = answer.status, seconds_of(answer.headers.get("Retry-After"))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Again(
                Unreachable(f"{self.server} cannot be reached: {_why(error)}"), is_undone=True
            ) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = (
                f"{self.server} gave no answer to {ask.method} {ask.path}: {_why(error)}; it may"
                " have been done"
            )
            raise _Again(Unreachable(told), is_undone=False) from None
        if status < 300:
            return raw
        raise self._refusal(status, raw, after)

    def _refusal(self, status: int, raw: bytes, after: float | None) -> Exception:
        """What to make of an answer that is no success: an error, which may pass or not."""
        if status < 400:
            return Unreachable(
                f"{self.server} points elsewhere ({status}); name the address itself: a key is not"
                " sent on"
            )
        problem = read_problem(status, raw)
        error = error_of(problem, after)
        if status == 429 or status >= 500 or problem.code in NOTHING_DONE:
            return _Again(error, is_undone=problem.code in NOTHING_DONE, retry_after_seconds=after)
        return error

    def _pause(self, number: int, retry_after_seconds: float | None) -> float | None:
        """How long to wait; None: longer than anybody wants to."""
        spread = self.runtime.chance() * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << number))
        if retry_after_seconds is None:
            return spread
        # All who were sent away at once must not come back at once.
        return retry_after_seconds + spread if retry_after_seconds <= PATIENCE_SECONDS else None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Made by the first call, inside its loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"User-Agent": "gesta-client"}, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def authorized(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Again(Exception):
    """It did not work, and may work the next time. `is_undone`: nothing was done for certain."""

    def __init__(
        self, error: GestaError, *, is_undone: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__()
        self.error, self.is_undone, self.retry_after_seconds = error, is_undone, retry_after_seconds


def path_of(*parts: str) -> str:
    """The parts as a path below /v1, whatever is in them."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def seconds_of(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    parts, length = [], 0
    async for part in answer.content.iter_chunked(256 * 1024):
        length += len(part)
        if length > ANSWER_BYTES_MAX:
            raise aiohttp.ClientPayloadError("the answer has no end")
        parts.append(part)
    return b"".join(parts)


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _why(error: BaseException) -> str:
    """In a few words, and with nothing in them that was sent."""
    if isinstance(error, TimeoutError):
        return "its time was up"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _checked_server(server: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadInput("server: an address like https://gesta.example.com is needed")
    if parts.username is not None or parts.password is not None:
        raise BadInput(
            "server: leave user and password out of the address; the API key is all that is needed"
        )
    return server.rstrip("/")


def _checked_key(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("api_key: that is no API key; make one with: gesta key create")
    return key
