"""The real way out: aiohttp, with the guard between every name and its address.

Where it differs from the library's defaults:

- *No hidden retry.* aiohttp repeats GET, PUT and DELETE once after a lost connection, on fresh
  connections too, so `force_close`
  would not help. Its retry looks for its own exceptions; a middleware turns them into ours before
  it sees them.
- *No redirects, no cookies, no proxies or credentials from the environment, no decompression* (we
  ask for plain answers, so that
  a small answer cannot unfold into a large one).
- *Resolve and pin.* A name is looked up for each new connection, its answers are filtered, and the
  connection goes to one of
  those that passed, with TLS checked against the name. A name that changes its answer between check
  and use gains nothing.
"""

import errno
import re
import socket
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.outbound.http.transport import Headers, HttpRequest, HttpResponse, TransportError
from gesta.outbound.lookups import AresResolver, Lookups

#: Answers are read up to here; a longer one is cut.
ANSWER_BYTES_MAX = 1_048_576
#: The share of the time limit for look-up, connection and TLS handshake. It is less than half, so
#: that a call that reaches the whole limit was certainly sent, however aiohttp rounds both limits.
CONNECT_SHARE = 0.4
CONNECT_SECONDS_MAX = 10.0
#: Shorter than the keep-alive of common servers (5 s and more). If the server closes a connection
#: while a request is sent on it, the outcome is Unknown.
KEEP_ALIVE_SECONDS = 4.0

_AddressInfo = tuple[
    int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]
#: aiohttp refuses these, too, but so late that it is unknown whether the request was sent.
_LINE_BREAK: Final = re.compile(r"[\r\n\0]")
_HEADERS: Final = {"accept-encoding": "identity", "user-agent": "gesta"}


class AioHttpTransport:
    """Makes one exchange for each call, only to addresses that the guard allows.

    Made inside a running loop, closed in the same one.
    """

    def __init__(
        self, guard: PrivateAddressGuard | None = None, resolver: AbstractResolver | None = None
    ) -> None:
        self._guard = guard or PrivateAddressGuard()
        self._resolver = Lookups(resolver or AresResolver())
        # A session per scheme: the guard is stricter with plain http, and aiohttp asks a resolver
        # without naming the scheme.
        self._sessions = {scheme: self._session(scheme) for scheme in ("https", "http")}

    def _session(self, scheme: str) -> aiohttp.ClientSession:
        def guarded_socket(info: _AddressInfo) -> socket.socket:
            # The last door, and the only one for URLs with an address instead of a name: aiohttp
            # does not resolve those.
            if refusal := self._guard.refusal(str(info[4][0]), scheme):
                raise TransportError(refusal, sent=False)
            return socket.socket(info[0], info[1], info[2])

        connector = aiohttp.TCPConnector(
            resolver=_GuardedResolver(self._resolver, self._guard, scheme),
            socket_factory=guarded_socket,
            use_dns_cache=False,
            # How many calls run at a time is the engine's business.
            limit=0,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(_named_errors,),
        )

    async def send(self, request: HttpRequest) -> HttpResponse:
        try:
            url = URL(request.url)
            session = self._sessions[url.scheme]
        except (ValueError, KeyError):
            raise TransportError("unsendable", sent=False) from None
        if any(_LINE_BREAK.search(name + value) for name, value in request.headers.items()):
            raise TransportError("unsendable", sent=False)
        total = request.timeout_seconds
        limits = aiohttp.ClientTimeout(
            total=total, connect=min(total * CONNECT_SHARE, CONNECT_SECONDS_MAX)
        )
        headers = _HEADERS | {name.lower(): value for name, value in request.headers.items()}
        try:
            async with session.request(
                request.method,
                url,
                headers=headers,
                data=request.body,
                allow_redirects=False,
                timeout=limits,
            ) as response:
                body, is_whole = await _bounded(response)
                return HttpResponse(
                    response.status, Headers(response.headers.items()), body, is_whole
                )
        # Chained exceptions would carry the URL into a traceback, so none is.
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _named(error) from None

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        await self._resolver.close()


class _GuardedResolver(AbstractResolver):
    """Resolves a name to the addresses that the guard allows."""

    def __init__(self, inner: AbstractResolver, guard: PrivateAddressGuard, scheme: str) -> None:
        self._inner, self._guard, self._scheme = inner, guard, scheme

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await self._inner.resolve(host, port, family)
        except UnicodeError:
            # Not a name at all: a part of it is too long, or has characters no name may have.
            raise TransportError("unsendable", sent=False) from None
        if not found:
            raise OSError(errno.EADDRNOTAVAIL, "the name has no address")
        refusals = [self._guard.refusal(entry["host"], self._scheme) for entry in found]
        passed = [entry for entry, refusal in zip(found, refusals, strict=True) if refusal is None]
        if not passed:
            raise TransportError(refusals[0] or "private_address", sent=False)
        return passed

    async def close(self) -> None:
        """The inner resolver is shared and closed by the transport."""


async def _named_errors(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _named(error) from None


async def _bounded(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    parts, size = [], 0
    while part := await response.content.readany():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            # The rest is not read, and aiohttp does not keep a connection with something unread on
            # it.
            return b"".join(parts)[:ANSWER_BYTES_MAX], False
    return b"".join(parts), True


def _named(error: Exception) -> TransportError:
    """Translate an exception of aiohttp; the only place that does.

    `sent` is False only for a failure before the connection exists.
    """
    match error:
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return TransportError("unsendable", sent=False)
        case aiohttp.ClientConnectorDNSError():
            return TransportError("dns", sent=False)
        case aiohttp.ClientSSLError():
            return TransportError("tls", sent=False)
        case aiohttp.ClientConnectorError():
            return TransportError(
                "refused" if error.errno == errno.ECONNREFUSED else "unreachable", sent=False
            )
        case aiohttp.ConnectionTimeoutError():
            return TransportError("connect_timeout", sent=False)
        case TimeoutError():
            return TransportError("timeout", sent=True)
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return TransportError("bad_answer", sent=True)
        case _:
            # Also a kept connection that its receiver closed: whether it had read the request
            # before is not ours to know.
            return TransportError("reset", sent=True)
