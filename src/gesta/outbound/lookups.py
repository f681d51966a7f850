"""Look-ups of host names, asynchronous and bounded in time and per tenant.

Names whose server does not answer must not delay other tenants. c-ares keeps any number of queries
open without a thread for each. An attempt waits for a moment; then it is postponed, which frees its
slot and uses up none of its request's attempts, while the look-up goes on. When it is due again, it
finds the answer, or the failure, which then ends the attempt.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver, ResolveResult

from gesta.flows.deferrals import Postponed
from gesta.runtime.clock import spawn

if TYPE_CHECKING:
    from aiodns import DNSResolver

#: A name server is asked twice, then the look-up has failed.
QUERY_SECONDS, QUERIES = 2.0, 2
#: No look-up lasts longer than this, whatever the resolver does.
LOOKUP_SECONDS = 5.0
#: An attempt waits for a look-up so long in its slot; postponed, it is due again after so long.
PATIENCE_SECONDS, POSTPONE_SECONDS = 0.5, 1.0
#: The end of a slow look-up is kept so long for postponed attempts.
KEPT_SECONDS = 5.0
#: Look-ups that one tenant may have open.
OPEN_MAX = 100

#: The tenant whose attempt runs in this task; empty: not an attempt, and not bounded.
LOOKUP_TENANT: ContextVar[str] = ContextVar("gesta-lookup-tenant", default="")

_Name = tuple[str, int, socket.AddressFamily]


class AresResolver(AbstractResolver):
    """Asks the system's name servers through c-ares, which reads /etc/hosts and knows localhost."""

    def __init__(self, nameservers: Sequence[str] | None = None) -> None:
        """`nameservers`: `address` or `address:port`, in place of the system's."""
        self._nameservers = nameservers
        self._resolver: DNSResolver | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError when the name has no address, UnicodeError when it cannot be a name."""
        if (literal := _literal(host)) is not None:
            return [_result(host, literal, port)]
        import aiodns

        if self._resolver is None:
            # Made at the first look-up: a process that forks before that shares nothing.
            self._resolver = aiodns.DNSResolver(
                self._nameservers, timeout=QUERY_SECONDS, tries=QUERIES
            )
        try:
            found = await self._resolver.getaddrinfo(
                host,
                port=port,
                family=family,
                type=socket.SOCK_STREAM,
                flags=socket.AI_ADDRCONFIG,
            )
        except aiodns.error.DNSError as error:
            if error.args and error.args[0] == aiodns.error.ARES_EBADNAME:
                raise UnicodeError(host) from None
            raise OSError(None, str(error.args[-1]) if error.args else "no address") from None
        return [_result(host, node.addr[0].decode(), port) for node in found.nodes]

    async def close(self) -> None:
        if self._resolver is not None:
            await self._resolver.close()


def _literal(host: str) -> str | None:
    """The address that a host without a name stands for, also in old forms such as 127.1."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host)) if host[:1].isdigit() else None
    except (OSError, UnicodeError):
        return None


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
    )


class _LookUp:
    """One look-up for all callers that ask while it is open."""

    __slots__ = ("began", "task")

    def __init__(self, task: asyncio.Task[list[ResolveResult]], began: float) -> None:
        self.task, self.began = task, began


class Lookups(AbstractResolver):
    """Shares each look-up among its callers, and keeps tenants apart.

    An answer that came in time is not cached: it may change at any moment.
    """

    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner
        self._open: dict[_Name, _LookUp] = {}
        self._open_of: Counter[str] = Counter()
        #: Slow look-ups that have ended, for the attempts that were postponed meanwhile.
        self._ended: dict[_Name, _LookUp] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises Postponed for an attempt whose look-up is slow, or whose tenant has too many."""
        name, tenant = (host, port, family), LOOKUP_TENANT.get()
        if (ended := self._ended.get(name)) is not None:
            return ended.task.result()
        look_up = self._open.get(name) or self._start(name, tenant)
        left = look_up.began + PATIENCE_SECONDS - _now() if tenant else None
        # `wait` does not cancel: a caller that gives up leaves the answer to the others.
        done, _ = await asyncio.wait([look_up.task], timeout=left)
        if not done:
            raise Postponed(POSTPONE_SECONDS)
        return look_up.task.result()

    async def close(self) -> None:
        for look_up in list(self._open.values()):
            look_up.task.cancel()
        await self._inner.close()

    def _start(self, name: _Name, tenant: str) -> _LookUp:
        if tenant and self._open_of[tenant] >= OPEN_MAX:
            raise Postponed(POSTPONE_SECONDS)
        self._open_of[tenant] += 1
        look_up = self._open[name] = _LookUp(spawn(self._look_up(name), "gesta-lookup"), _now())
        look_up.task.add_done_callback(lambda _: self._end(name, tenant, look_up))
        return look_up

    def _end(self, name: _Name, tenant: str, look_up: _LookUp) -> None:
        del self._open[name]
        self._open_of[tenant] -= 1
        if not self._open_of[tenant]:
            del self._open_of[tenant]
        if look_up.task.cancelled():
            return
        # Retrieved here, so that asyncio does not log a failure without callers.
        look_up.task.exception()
        if _now() - look_up.began > PATIENCE_SECONDS:
            self._ended[name] = look_up
            loop = asyncio.get_running_loop()
            loop.call_later(KEPT_SECONDS, self._ended.pop, name, None)

    async def _look_up(self, name: _Name) -> list[ResolveResult]:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._inner.resolve(*name)
        except TimeoutError:
            raise OSError(None, "no name server answered in time") from None


def _now() -> float:
    return asyncio.get_running_loop().time()
