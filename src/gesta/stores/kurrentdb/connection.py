"""One KurrentDB server or cluster: the URL, and the calls with our errors.

The client repeats a failed read or tombstone once by itself. That is harmless: a read changes
nothing, and a tombstone has an explicit expected version and is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from kurrentdbclient import RecordedEvent
from kurrentdbclient.common import AbstractAsyncCatchupSubscription
from kurrentdbclient.exceptions import (
    KurrentDBClientError,
    NotFoundError,
    StreamIsDeletedError,
    WrongCurrentVersionError,
)
from kurrentdbclient.streams import AsyncReadResponse

from gesta.errors import BadSettings
from gesta.runtime.redaction import scrub
from gesta.stores.kurrentdb.client import Answer, Client, Deleted, Write, state_of
from gesta.stores.kurrentdb.errors import FAILURES, raise_as_store_error

EXAMPLE = "kurrentdb://user:password@host:2113, or kurrentdb://127.0.0.1:2113?Tls=false"
#: How long the server may take to answer a call. An append that it has not begun by then is
#: refused by the server.
CALL_SECONDS = 10.0
#: Reads at a time: KurrentDB reads one stream per call, and calls share a connection.
READS = 64
#: Requests of one call. More of them would only wait in the server.
APPENDS_PER_CALL = 500


@dataclass(frozen=True)
class Address:
    """What a URL says. `name` is for people: without a password."""

    url: str
    name: str


def address_of(url: str) -> Address:
    """Raises BadSettings that names what is wrong, and never the password."""
    name = scrub(url)
    try:
        client = Client(url)
    except (ValueError, KurrentDBClientError) as error:
        raise BadSettings(f"url: {scrub(str(error))}; write {EXAMPLE}") from None
    options = client.connection_spec.options
    hosts = [target.rpartition(":")[0].strip("[]") for target in client.connection_spec.targets]
    if not options.tls and not all(_is_loopback(host) for host in hosts):
        raise BadSettings(
            f"url: {name} is not on this machine, and Tls=false would send everything unencrypted;"
            " leave Tls=false out"
        )
    if options.node_preference != "leader":
        raise BadSettings(
            f"url: {name} reads from a node that may lag behind; leave NodePreference out"
        )
    return Address(url, name)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Connection:
    def __init__(self, address: Address) -> None:
        self.address = address
        self._client = Client(address.url)
        self._reading = asyncio.Semaphore(READS)

    async def close(self) -> None:
        await self._client.close()

    async def append(self, writes: Sequence[Write]) -> list[Answer]:
        """Each whole or not at all, in this order; many share a call."""
        answers: list[Answer] = []
        for start in range(0, len(writes), APPENDS_PER_CALL):
            async with self.errors():
                answers += await self._client.append_many(
                    writes[start : start + APPENDS_PER_CALL], CALL_SECONDS
                )
        return answers

    async def read(
        self, stream: str, start: int | None, *, backwards: bool = False, limit: int = 2**31
    ) -> list[RecordedEvent] | Deleted:
        """Events of a stream from an index on, which counts from 0; [] if there is none."""
        async with self._reading, self.errors():
            try:
                found = await self._client.get_stream(
                    stream,
                    stream_position=start,
                    backwards=backwards,
                    limit=limit,
                    timeout=CALL_SECONDS,
                )
            except NotFoundError:
                return []
            except StreamIsDeletedError:
                return Deleted()
            return list(found)

    async def newest(self, pattern: str) -> AsyncReadResponse:
        """The events of all streams whose name matches, newest first. Use within `errors`."""
        return await self._client.read_all(
            backwards=True,
            filter_include=(pattern,),
            filter_by_stream_name=True,
            timeout=CALL_SECONDS,
        )

    async def subscribe(self, pattern: str, after: int) -> AbstractAsyncCatchupSubscription:
        """Catch up from a commit position, which is not included. Use within `errors`."""
        return await self._client.subscribe_to_all(
            commit_position=after or None,
            filter_include=(pattern,),
            filter_by_stream_name=True,
            include_checkpoints=True,
            include_caught_up=True,
            window_size=1_000,
            checkpoint_interval_multiplier=1,
        )

    async def tombstone(self, stream: str, version: int) -> bool:
        """Delete a stream that has so many events for good. True: it is deleted."""
        async with self.errors():
            try:
                await self._client.tombstone_stream(
                    stream, current_version=state_of(version), timeout=CALL_SECONDS
                )
            except (WrongCurrentVersionError, NotFoundError):
                return False
            except StreamIsDeletedError:
                return True
            return True

    @asynccontextmanager
    async def errors(self) -> AsyncIterator[None]:
        try:
            yield
        except FAILURES as error:
            raise_as_store_error(self.address.name, error)
