"""Claimed keys: one stream for each key, `gesta.key-` and the key's digest in hex.

KurrentDB has no transaction over several streams, so a claim comes first and the request follows:

- KeyClaimed, on a stream that does not exist, wins the key.
- The first event of the request is appended. Only then is the request accepted.
- If that is refused, KeyReleased gives the key up.

A process that dies between the first two steps leaves a key without a request. The next process
that wants the key finds no stream of the request. It waits a little, then closes that stream with
KeyTakenOver, which makes a late append of the first process fail, and claims the key itself. So at
every moment a key leads to one request at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

import msgspec
from kurrentdbclient import NewEvent, RecordedEvent

from gesta.errors import StoreError
from gesta.ports.event_store import Append, Claim
from gesta.runtime.clock import Runtime, run_all, sleep
from gesta.stores.kurrentdb.client import Deleted, Write, Written
from gesta.stores.kurrentdb.connection import Connection

PREFIX = "gesta.key-"
CLAIMED, RELEASED, TAKEN_OVER = "KeyClaimed.v1", "KeyReleased.v1", "KeyTakenOver.v1"
#: How long a process is given between its claim and its first event. A slower one gets an error,
#: and its caller submits again; nothing is written twice whatever this number is.
GRACE_SECONDS = 2.0
LOOK_SECONDS = 0.05
#: After so many lost races for a key the caller has to try again.
TRIES = 20


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """The data of KeyClaimed. `stream`: of the request whose first event follows; None: the claim
    was copied, and holds without a request.
    """

    request_id: str
    content: bytes
    stream: str | None = None


class Standing(NamedTuple):
    """The last event of a key's stream. `holder` is None if the key is free."""

    version: int
    holder: Holder | None
    position: int = 0


def stream_of(name: bytes) -> str:
    return f"{PREFIX}{name.hex()}"


def name_of(stream: str) -> bytes:
    return bytes.fromhex(stream.removeprefix(PREFIX))


def holder_of(claim: Claim, stream: str | None) -> Holder:
    return Holder(claim.request_id, claim.content, stream)


def claiming(name: bytes, version: int, holder: Holder, nonce: bytes) -> Write:
    """With a fresh nonce, it has an id of its own: the server would answer a repeated claim as it
    did the first one, although another request may have the key by now. A repetition is recognised
    by its request instead.
    """
    data = msgspec.json.encode(holder)
    return _write(stream_of(name), version, CLAIMED, data, nonce)


def read_standing(event: RecordedEvent) -> Standing:
    is_held = event.type == CLAIMED
    return Standing(
        event.stream_position + 1,
        msgspec.json.decode(event.data, type=Holder) if is_held else None,
        event.commit_position,
    )


def _write(stream: str, version: int, kind: str, data: bytes, nonce: bytes = b"") -> Write:
    digest = sha256(f"{stream}\0{version}\0{kind}\0".encode() + nonce + data).digest()
    return Write(
        stream,
        version,
        [NewEvent(type=kind, data=data, metadata=b"", id=UUID(bytes=digest[:16]))],
    )


class Keys:
    """The protocol above, for one store."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection, self._runtime = connection, runtime

    async def claim(self, wanted: Mapping[bytes, Holder]) -> dict[bytes, Standing]:
        """Claim keys in one call; where each stands now. A key that was claimed before stays."""
        nonce = self._runtime.random_bytes(16)
        writes = [claiming(name, 0, holder, nonce) for name, holder in wanted.items()]
        answers = await self._connection.append(writes)
        lost = [
            name
            for name, answer in zip(wanted, answers, strict=True)
            if not isinstance(answer, Written)
        ]
        stands = dict(zip(lost, await self.standing(lost), strict=True))
        return {name: stands.get(name, Standing(1, holder)) for name, holder in wanted.items()}

    async def standing(self, names: Sequence[bytes]) -> list[Standing]:
        reads = [
            self._connection.read(stream_of(name), None, backwards=True, limit=1) for name in names
        ]
        found = await run_all(reads, "gesta-kurrentdb-keys")
        return [
            read_standing(events[0])
            if events and not isinstance(events, Deleted)
            else Standing(0, None)
            for events in found
        ]

    async def settle(self, name: bytes, wanted: Holder) -> Holder:
        """Who has the key for good: `wanted`, or a request that exists."""
        for _ in range(TRIES):
            (stands,) = await self.standing([name])
            holder = stands.holder
            if holder is not None and (
                holder.request_id == wanted.request_id or await self._is_valid(holder)
            ):
                return holder
            nonce = self._runtime.random_bytes(16)
            claim = claiming(name, stands.version, wanted, nonce)
            (answer,) = await self._connection.append([claim])
            if isinstance(answer, Written):
                return wanted
        raise StoreError(
            f"{self._connection.address.name}: a key changed {TRIES} times while it was being"
            " claimed; try again"
        )

    async def release(self, name: bytes, holder: Holder) -> None:
        """Give up a key whose request was refused. A claim that is older than the request stays:
        it was made when the request was accepted.
        """
        assert holder.stream is not None
        (stands,) = await self.standing([name])
        first = await self._connection.read(holder.stream, 0, limit=1)
        if stands.holder != holder or isinstance(first, Deleted):
            return
        if not first or first[0].commit_position < stands.position:
            # If it does not fit, another process has settled the key meanwhile.
            write = _write(stream_of(name), stands.version, RELEASED, b"{}")
            await self._connection.append([write])

    async def _is_valid(self, holder: Holder) -> bool:
        """Whether the request of a claim exists or existed. False: it never will."""
        if holder.stream is None:
            return True
        end = self._runtime.monotonic() + GRACE_SECONDS
        while True:
            first = await self._connection.read(holder.stream, 0, limit=1)
            if isinstance(first, Deleted):
                # Retention removed it: only a request that exists is removed.
                return True
            if first:
                return first[0].type != TAKEN_OVER
            if self._runtime.monotonic() >= end:
                break
            await sleep(self._runtime, LOOK_SECONDS)
        # If the request has come after all, this does not fit, and the next look shows which.
        await self._connection.append([_write(holder.stream, 0, TAKEN_OVER, b"{}")])
        first = await self._connection.read(holder.stream, 0, limit=1)
        return isinstance(first, Deleted) or bool(first and first[0].type != TAKEN_OVER)


def is_appended(event: RecordedEvent) -> bool:
    """Whether it is an event that gesta's callers appended, and not a mark of the store."""
    return event.type != TAKEN_OVER and not event.type.startswith("$")


def first_claims(appends: Sequence[Append]) -> dict[bytes, Holder]:
    """The first claim to each key of a batch."""
    wanted: dict[bytes, Holder] = {}
    for append in appends:
        if append.claim is not None:
            wanted.setdefault(append.claim.name, holder_of(append.claim, append.stream))
    return wanted
