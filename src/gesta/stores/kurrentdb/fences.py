"""Fences around the events, in the stream `gesta.fences`. Implements gesta.ports.fences.

KurrentDB has no transaction over several streams, so an append cannot look at the fence in the same
step. Each process reads the fences before it appends, unless it has read them within CHECK_SECONDS.
An append that began before may still arrive until its call ends. So `put_up` returns only when no
append can arrive any more that has not seen the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

import msgspec
from kurrentdbclient import NewEvent

from gesta.errors import Fenced, StoreError
from gesta.ports.event_store import Append
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.runtime.clock import Runtime, sleep
from gesta.stores.kurrentdb.client import Deleted, Write, Written
from gesta.stores.kurrentdb.connection import CALL_SECONDS, Connection
from gesta.stores.owners import tenant_of

STREAM = "gesta.fences"
KIND = "FencesChanged.v1"
CHECK_SECONDS = 1.0
#: An append is sent in at most two calls after the check, claims and events.
SETTLE_SECONDS = CHECK_SECONDS + 2 * CALL_SECONDS
TRIES = 20

_Standing = dict[tuple[str, str], Fence]


class KurrentDBFences:
    """Fences of the kind `filling` stop jobs only, which are in another database."""

    def __init__(self, connection: Connection, runtime: Runtime, *, settle_seconds: float) -> None:
        """`settle_seconds`: 0 where no other process uses the store."""
        self._connection, self._runtime = connection, runtime
        self._settle_seconds = settle_seconds
        self._version, self._standing = 0, _Standing()
        self._checked_at = float("-inf")

    async def put_up(self, fence: Fence) -> None:
        await self._change(fence, is_up=True)
        if self._settle_seconds:
            await sleep(self._runtime, self._settle_seconds)

    async def take_down(self, fence: Fence, _: Sequence[Job] = ()) -> None:
        await self._change(fence, is_up=False)

    async def standing(self) -> list[Fence]:
        await self._read()
        return [fence for _, fence in sorted(self._standing.items())]

    async def check(self) -> None:
        """Before anything is written."""
        if self._runtime.monotonic() - self._checked_at > CHECK_SECONDS:
            await self._read()
        self._refuse("")

    async def check_appends(self, appends: Sequence[Append]) -> None:
        """Before events are appended. A call is refused as a whole."""
        await self.check()
        if self._standing:
            for tenant in {tenant_of(event.meta) for one in appends for event in one.events}:
                self._refuse(tenant)

    def _refuse(self, tenant: str) -> None:
        found = self._standing.get(("left", tenant))
        if found is not None:
            name = self._connection.address.name
            raise Fenced(name, found.kind, other=found.other, tenant=found.tenant)

    async def _read(self) -> None:
        # The time is taken before: what is written afterwards is not in the answer.
        now = self._runtime.monotonic()
        found = await self._connection.read(STREAM, None, backwards=True, limit=1)
        if found and not isinstance(found, Deleted):
            fences = msgspec.json.decode(found[0].data, type=list[Fence])
            self._version = found[0].stream_position + 1
            self._standing = {(one.kind, one.tenant or ""): one for one in fences}
        self._checked_at = now

    async def _change(self, fence: Fence, *, is_up: bool) -> None:
        """Each event has all fences that are up."""
        key = fence.kind, fence.tenant or ""
        for _ in range(TRIES):
            await self._read()
            rest = {one: found for one, found in self._standing.items() if one != key}
            wanted = rest | {key: fence} if is_up else rest
            if wanted == self._standing:
                return
            data = msgspec.json.encode([wanted[one] for one in sorted(wanted)])
            digest = sha256(b"%d\0" % self._version + data).digest()
            event = NewEvent(type=KIND, data=data, metadata=b"", id=UUID(bytes=digest[:16]))
            (answer,) = await self._connection.append([Write(STREAM, self._version, [event])])
            if isinstance(answer, Written):
                self._version, self._standing = self._version + 1, wanted
                return
        raise StoreError(f"{self._connection.address.name}: the fences keep changing; try again")
