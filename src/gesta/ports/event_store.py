"""Station 3, port: the event store, the only truth.

Receives appends from intake, worker and sweep; the projector follows it.

Version = how many events the stream has, so the first event is version 1 and a new stream is
expected at 0.
Position = opaque, ordered, one total order over all streams; gaps are allowed, going back is not.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from gesta.domain.events import Event, Meta
from gesta.domain.state import State


class Known(msgspec.Struct, frozen=True, gc=False):
    """An event and its metadata, decoded."""

    event: Event
    meta: Meta
    #: The request after it, where whoever appended it has folded it in already.
    after: State | None = None


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to append.

    Ids are made by the caller, so that an append repeated after a lost answer is recognised.
    """

    id: bytes
    type: str
    data: bytes
    meta: bytes
    #: What the bytes say, handed on to a follower in the same process so that it need not read
    #: them. Never stored.
    known: Known | None = None


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as the store keeps it."""

    position: int
    stream: str
    version: int
    id: bytes
    type: str
    data: bytes
    meta: bytes
    known: Known | None = None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A caller's key, claimed in the same commit as the stream it leads to.

    `name` and `content` are keyed digests.
    """

    name: bytes
    request_id: str
    content: bytes


class Append(msgspec.Struct, frozen=True, gc=False):
    """All events or none, if the stream still has `expected` events and the claim, if any, is
    free.
    """

    stream: str
    expected: int
    events: tuple[NewEvent, ...]
    claim: Claim | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """On disk. `version` is the stream's version after these events.

    Also the answer to an append that already stands there.
    """

    version: int


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The stream moved since `expected` was read; nothing was written."""

    actual: int


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The key leads to an earlier request; nothing was written.

    Equal `content` means: the same was asked.
    """

    request_id: str
    content: bytes


AppendVerdict = Appended | Stale | Claimed


class Share(msgspec.Struct, frozen=True, gc=False):
    """Some of the partitions into which a log is divided: `numbers` out of 0 to `count` - 1.

    A stream is in one of them for ever.
    """

    count: int
    numbers: tuple[int, ...]

    def has(self, stream: str) -> bool:
        # A hash that every store can compute, and that no version of a store or of Python changes.
        return sha256(stream.encode()).digest()[0] % self.count in self.numbers

    def part_of(self, events: Sequence[Recorded], after: int) -> tuple[list[Recorded], int]:
        """The events of these partitions, and the position of the last of all; `after` if none."""
        reached = events[-1].position if events else after
        return [one for one in events if self.has(one.stream)], reached


#: Of the data of events, what one look at the log gives at most, but for the last of them: whoever
#: follows has to hold it in memory.
FOLLOW_BYTES = 16 * 1024 * 1024


def until_full(events: Iterable[Recorded]) -> list[Recorded]:
    """These events up to the one with which their data comes to FOLLOW_BYTES.

    The others are not asked for.
    """
    found: list[Recorded] = []
    size = 0
    for event in events:
        found.append(event)
        size += len(event.data)
        if size >= FOLLOW_BYTES:
            break
    return found


class EventStore(Protocol):
    """Append, read, follow; each call carries many."""

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """A verdict for each append, in order, once it is on disk.

        One refused append does not touch the others.
        """

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        """The events of each stream after the given version, in order within a stream.

        Reads what is committed now.
        """

    async def read_back(self, stream: str, before: int | None, limit: int) -> list[Recorded]:
        """The last events of a stream before the given version, or of all of it; newest first."""

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        """The next events of all streams after a position, oldest first; empty at the end.

        Never skips one that commits later.

        At most `limit`, and none behind the one with which their data comes to FOLLOW_BYTES. So
        fewer than `limit` does not mean the end.
        """

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        """As `follow`, only the events of some partitions among the next `limit` of all; and the
        position up to which all were looked at.

        What their data comes to may be counted with or without the events of others.
        """

    async def end(self) -> int:
        """The position of the newest event, whether or not it is still there; 0 when there never
        was one.
        """

    async def behind(self, after: int) -> int:
        """How many events follow a position: 0 at the end, never fewer than there are.

        Cheap, so it may be somewhat more.
        """

    async def changed(self, timeout_seconds: float) -> None:
        """Return when something may have been appended, at the latest after the timeout.

        A hint, never a promise.
        """


class KeyClaims(Protocol):
    """The claimed keys by themselves, for store copies and operators. `append` claims keys, too."""

    async def claims(self, after: bytes, limit: int) -> list[Claim]:
        """Claimed keys in the order of their names, behind `after`."""

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        """Claim keys without a stream, for one that was copied or removed; on disk.

        False: the key leads to another request and stays.
        """
