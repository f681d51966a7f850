"""Events in KurrentDB. Implements gesta.ports.event_store."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from kurrentdbclient import NewEvent as ClientEvent
from kurrentdbclient import RecordedEvent

from gesta.domain.stream_names import OURS, is_ours
from gesta.errors import StoreError
from gesta.ports.event_store import (
    Append,
    Appended,
    AppendVerdict,
    Claim,
    Claimed,
    NewEvent,
    Recorded,
    Share,
    Stale,
)
from gesta.runtime.clock import Runtime, Signal, run_all
from gesta.stores.first_claims import append_with_claims, have_claims
from gesta.stores.kurrentdb import key_claims
from gesta.stores.kurrentdb.client import Answer, Deleted, Write, WrongVersion
from gesta.stores.kurrentdb.connection import Connection
from gesta.stores.kurrentdb.fences import KurrentDBFences
from gesta.stores.kurrentdb.follower import Follower
from gesta.stores.kurrentdb.key_claims import Holder, Keys

#: Followers of one process that are kept open. One that is not needed any more is closed first.
FOLLOWERS = 8
#: The events of a page when all claims are read.
PAGE = 500
#: No event of ours takes fewer bytes in the server's log.
EVENT_BYTES_MIN = 128


class KurrentDBEventStore:
    def __init__(self, connection: Connection, runtime: Runtime, fences: KurrentDBFences) -> None:
        self._connection, self._runtime, self._fences = connection, runtime, fences
        self._keys = Keys(connection, runtime)
        self._appended = Signal(runtime)
        #: Position → the follower that has read up to it.
        self._followers: dict[int, Follower] = {}
        #: Key → how many calls of this process are between its claim and the events.
        self._under_way: Counter[bytes] = Counter()
        self._settled = asyncio.Event()
        self._listed: list[Claim] = []

    async def close(self) -> None:
        for follower in self._followers.values():
            await follower.close()
        await self._connection.close()

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        if have_claims(appends):
            return await append_with_claims(appends, self.put_claims, self._append_all)
        return await self._append_all(appends)

    async def _append_all(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """Claims in one call, then events in one call, in their order."""
        self._check_names(appends)
        await self._fences.check_appends(appends)
        wanted = key_claims.first_claims(appends)
        self._under_way.update(wanted.keys())
        try:
            verdicts = await self._append(appends, wanted)
        finally:
            for name in wanted:
                self._under_way[name] -= 1
                if not self._under_way[name]:
                    del self._under_way[name]
            self._settled.set()
        contested: dict[bytes, list[int]] = {}
        for number, append in enumerate(appends):
            if number not in verdicts and append.claim is not None:
                contested.setdefault(append.claim.name, []).append(number)
        found = await run_all(
            [self._contest_all([appends[n] for n in group]) for group in contested.values()],
            "gesta-kurrentdb-contest",
        )
        for group, answers in zip(contested.values(), found, strict=True):
            verdicts |= zip(group, answers, strict=True)
        self._appended.set()
        return [verdicts[number] for number in range(len(appends))]

    async def _append(
        self, appends: Sequence[Append], wanted: Mapping[bytes, Holder]
    ) -> dict[int, AppendVerdict]:
        """The verdicts on all but those whose key another request has claimed."""
        stands = await self._keys.claim(wanted) if wanted else {}
        chosen = [
            number
            for number, append in enumerate(appends)
            if append.claim is None
            or _leads_to(stands[append.claim.name].holder, append.claim.request_id)
        ]
        answers = await self._write([appends[number] for number in chosen])
        return {
            number: await self._verdict(appends[number], answer)
            for number, answer in zip(chosen, answers, strict=True)
        }

    async def _write(self, appends: Sequence[Append]) -> list[Answer]:
        writes = [
            Write(append.stream, append.expected, [_client_event(one) for one in append.events])
            for append in appends
        ]
        return await self._connection.append(writes)

    async def _verdict(self, append: Append, answer: Answer) -> AppendVerdict:
        if isinstance(answer, WrongVersion | Deleted) and append.claim is not None:
            await self._keys.release(
                append.claim.name, key_claims.holder_of(append.claim, append.stream)
            )
        if isinstance(answer, WrongVersion):
            return Stale(await self._count(append.stream, answer.actual))
        if isinstance(answer, Deleted):
            return Stale(0)
        return Appended(append.expected + len(append.events))

    async def _count(self, stream: str, actual: int) -> int:
        """How many events a stream has; raises if another request has taken over its key."""
        if actual == 1:
            first = await self._connection.read(stream, 0, limit=1)
            if first and not isinstance(first, Deleted) and not key_claims.is_appended(first[0]):
                raise StoreError(
                    f"{self._connection.address.name}: another process has taken over the key of"
                    f" {stream}, because this one did not answer; nothing was written. Submit"
                    " again: the answer names the request that has the key"
                )
        return actual

    async def _contest_all(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """Of one key, one after the other."""
        return [await self._contest(append) for append in appends]

    async def _contest(self, append: Append) -> AppendVerdict:
        """A key that another request has claimed: its own, unless that request never came."""
        claim = append.claim
        assert claim is not None
        while self._under_way[claim.name] > 0:
            # The request that has the key may be on its way in this process.
            self._settled.clear()
            await self._settled.wait()
        wanted = key_claims.holder_of(claim, append.stream)
        holder = await self._keys.settle(claim.name, wanted)
        if not _leads_to(holder, claim.request_id):
            return Claimed(holder.request_id, holder.content)
        (answer,) = await self._write([append])
        return await self._verdict(append, answer)

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        found = await run_all([self._read(*one) for one in streams], "gesta-kurrentdb-read")
        return [event for events in found for event in events]

    async def _read(self, stream: str, after: int) -> list[Recorded]:
        return _recorded(await self._connection.read(stream, after))

    async def read_back(self, stream: str, before: int | None, limit: int) -> list[Recorded]:
        if before is not None and before <= 1:
            return []
        start = None if before is None else before - 2
        found = await self._connection.read(stream, start, backwards=True, limit=limit)
        return _recorded(found)

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        follower = await self._follower(after)
        try:
            # The subscription is a little behind. Up to this position, its events are waited for.
            end = 0 if follower.is_full(limit) else await self._newest()
            found: list[Recorded] = []
            while not found and (page := await follower.page(limit, end)):
                found = _recorded(page)
        except BaseException:
            await follower.close()
            raise
        await self._keep(follower)
        return found

    async def _follower(self, after: int) -> Follower:
        follower = self._followers.pop(after, None)
        if follower is not None and not follower.has_failed:
            return follower
        if follower is not None:
            await follower.close()
        follower = Follower(
            self._connection,
            pattern=OURS,
            after=after,
            arrived=self._appended.set,
            runtime=self._runtime,
        )
        await follower.start()
        return follower

    async def _keep(self, follower: Follower) -> None:
        replaced = self._followers.pop(follower.taken, None)
        self._followers[follower.taken] = follower
        if replaced is None and len(self._followers) > FOLLOWERS:
            replaced = self._followers.pop(next(iter(self._followers)))
        if replaced is not None:
            await replaced.close()

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        # The server filters by the name of a stream, which says nothing about its partition.
        return share.part_of(await self.follow(after, limit), after)

    async def end(self) -> int:
        return await self._newest(is_appended=True)

    async def _newest(self, pattern: str = OURS, *, is_appended: bool = False) -> int:
        """The position of the newest event; with `is_appended`, of one that a caller appended."""
        async with self._connection.errors():
            response = await self._connection.newest(pattern)
            async with response as events:
                async for event in events:
                    if not is_appended or key_claims.is_appended(event):
                        return event.commit_position
        return 0

    async def behind(self, after: int) -> int:
        """Several times too high: positions are bytes, and include the claims of keys."""
        end = await self.end()
        return (end - after) // EVENT_BYTES_MIN + 1 if end > after else 0

    async def changed(self, timeout_seconds: float) -> None:
        if not self._followers:
            # Without a subscription, appends of other processes would not be noticed.
            await self._keep(await self._follower(await self._newest()))
        await self._appended.wait(timeout_seconds)

    async def remove_streams(self, streams: Sequence[tuple[str, int]], passed: int) -> list[bool]:
        return await run_all(
            [self._remove(*one, passed) for one in streams], "gesta-kurrentdb-remove"
        )

    async def _remove(self, stream: str, version: int, passed: int) -> bool:
        last = await self._connection.read(stream, None, backwards=True, limit=1)
        if isinstance(last, Deleted):
            return True
        is_same = bool(last) and last[0].stream_position + 1 == version
        if not is_same or last[0].commit_position > passed:
            return False
        return await self._connection.tombstone(stream, version)

    async def claims(self, after: bytes, limit: int) -> list[Claim]:
        """The first page reads all claims: KurrentDB has them in the order of their time."""
        if not after:
            self._listed = await self._all_claims()
        start = bisect_right(self._listed, after, key=lambda claim: claim.name)
        return self._listed[start : start + limit]

    async def _all_claims(self) -> list[Claim]:
        """Without those whose request has never come."""
        holders: dict[bytes, Holder | None] = {}
        awaited: dict[str, bytes] = {}
        pattern = f"({OURS}|{key_claims.PREFIX}.+)"
        end = await self._newest(pattern)
        follower = Follower(
            self._connection, pattern=pattern, after=0, arrived=_nothing, runtime=self._runtime
        )
        await follower.start()
        try:
            while page := await follower.page(PAGE, end):
                for event in page:
                    _note_claim(event, holders, awaited)
        finally:
            await follower.close()
        for stream, name in awaited.items():
            first = await self._connection.read(stream, 0, limit=1)
            if not isinstance(first, Deleted) and not (first and key_claims.is_appended(first[0])):
                holders[name] = None
        return [
            Claim(name, holder.request_id, holder.content)
            for name, holder in sorted(holders.items())
            if holder is not None
        ]

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        await self._fences.check()
        wanted = {one.name: key_claims.holder_of(one, None) for one in reversed(claims)}
        stands = await self._keys.claim(wanted) if wanted else {}
        answers = []
        for claim in claims:
            holder = stands[claim.name].holder
            if not _leads_to(holder, claim.request_id):
                holder = await self._keys.settle(claim.name, wanted[claim.name])
            answers.append(_leads_to(holder, claim.request_id))
        return answers

    def _check_names(self, appends: Sequence[Append]) -> None:
        for append in appends:
            if not is_ours(append.stream):
                raise StoreError(
                    f"{self._connection.address.name}: the stream {append.stream} has a name that"
                    " gesta does not follow (domain/stream_names.py); nothing"
                    " was written"
                )


def _nothing() -> None: ...


def _note_claim(
    event: RecordedEvent, holders: dict[bytes, Holder | None], awaited: dict[str, bytes]
) -> None:
    """Take up an event of the log; `awaited`: streams whose first event has not been seen."""
    if not event.stream_name.startswith(key_claims.PREFIX):
        awaited.pop(event.stream_name, None)
        return
    name, holder = key_claims.name_of(event.stream_name), key_claims.read_standing(event).holder
    holders[name] = holder
    if holder is not None and holder.stream is not None:
        awaited[holder.stream] = name


def _leads_to(holder: Holder | None, request_id: str) -> bool:
    return holder is not None and holder.request_id == request_id


def _client_event(event: NewEvent) -> ClientEvent:
    return ClientEvent(
        type=event.type,
        data=event.data,
        metadata=event.meta,
        content_type="application/json",
        id=UUID(bytes=event.id),
    )


def _recorded(found: Sequence[RecordedEvent] | Deleted) -> list[Recorded]:
    if isinstance(found, Deleted):
        return []
    return [
        Recorded(
            one.commit_position,
            one.stream_name,
            one.stream_position + 1,
            one.id.bytes,
            one.type,
            one.data,
            one.metadata,
        )
        for one in found
        if key_claims.is_appended(one)
    ]
