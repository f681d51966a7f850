"""Port: the event store, the source of truth.

The version of a stream is the number of its events: its first event has version 1, and a new stream
is expected at 0. A position orders the events of all streams. Positions may have gaps, but a later
commit never has an earlier position.
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
    #: The request after the event, if the process that appended it has computed it.
    after: State | None = None


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to append. The caller makes its id: a repeated append is recognised by it."""

    id: bytes
    type: str
    data: bytes
    meta: bytes
    #: The same, decoded, for followers in the same process. Never stored.
    known: Known | None = None


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A stored event."""

    position: int
    stream: str
    version: int
    id: bytes
    type: str
    data: bytes
    meta: bytes
    known: Known | None = None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A caller's key and the request that it leads to. `name` and `content` are keyed digests."""

    name: bytes
    request_id: str
    content: bytes


class Append(msgspec.Struct, frozen=True, gc=False):
    """Events to append to a stream: all or none.

    They are refused if the stream no longer has `expected` events, or if the key is claimed.
    """

    stream: str
    expected: int
    events: tuple[NewEvent, ...]
    claim: Claim | None = None
    #: Another key, claimed before all else, which stays claimed if the events are refused. They are
    #: appended only if it leads to the request of this claim, which need not be theirs. Only of
    #: appends that no job's settlement is recorded with.
    first: Claim | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """The events are on disk, perhaps by an earlier, equal append. `version`: of the stream."""

    version: int


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The stream has other events than `expected`; nothing was written."""

    actual: int


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The key leads to an earlier request; nothing was written.

    Equal `content`: the earlier request is the same.
    """

    request_id: str
    content: bytes


class LeadsElsewhere(msgspec.Struct, frozen=True, gc=False):
    """The key of the `first` claim leads to another request; nothing was appended."""


AppendVerdict = Appended | Stale | Claimed | LeadsElsewhere


class Share(msgspec.Struct, frozen=True, gc=False):
    """Some partitions of the log: `numbers` out of 0 to `count` - 1.

    A stream stays in its partition forever.
    """

    count: int
    numbers: tuple[int, ...]

    def has(self, stream: str) -> bool:
        # Every store can compute this hash, and no version of Python changes it.
        return sha256(stream.encode()).digest()[0] % self.count in self.numbers

    def part_of(self, events: Sequence[Recorded], after: int) -> tuple[list[Recorded], int]:
        """The events of these partitions, and the position of the last of all; `after` if none."""
        reached = events[-1].position if events else after
        return [one for one in events if self.has(one.stream)], reached


#: `follow` ends with the event whose data makes it this many bytes: a follower holds it in memory.
FOLLOW_BYTES = 16 * 1024 * 1024


def until_full(events: Iterable[Recorded]) -> list[Recorded]:
    """The events up to the one whose data makes it FOLLOW_BYTES. Later ones are not read."""
    found: list[Recorded] = []
    size = 0
    for event in events:
        found.append(event)
        size += len(event.data)
        if size >= FOLLOW_BYTES:
            break
    return found


class EventStore(Protocol):
    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """A verdict for each append, in order, once it is on disk.

        A refused append does not affect the others.
        """

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        """The committed events of each stream after a version, in order within a stream."""

    async def read_back(self, stream: str, before: int | None, limit: int) -> list[Recorded]:
        """The last events of a stream, newest first; only those before a version if given."""

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        """The next events of all streams after a position, oldest first; empty at the end.

        Never skips an event that commits later. At most `limit`, and none after the one whose data
        makes it FOLLOW_BYTES: fewer than `limit` does not mean the end.
        """

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        """As `follow`, for some partitions among the next `limit` events of all; and the position
        up to which events were read.

        FOLLOW_BYTES may count the events of other partitions or not.
        """

    async def end(self) -> int:
        """The position of the newest event ever appended; 0 if there was none."""

    async def behind(self, after: int) -> int:
        """How many events follow a position; 0 at the end. May be too high, never too low."""

    async def changed(self, timeout_seconds: float) -> None:
        """Return when an event may have been appended, by any process, or after the timeout."""


class EventRemoval(Protocol):
    """For an event store that is not in the database of the views (stores/separate_events.py)."""

    async def remove_streams(self, streams: Sequence[tuple[str, int]], passed: int) -> list[bool]:
        """Remove each stream of this version that has no event after the position `passed`.

        True: it is removed, perhaps by an earlier call. Its name cannot be used again.
        """


class KeyClaims(Protocol):
    """The claimed keys, for store copies and operators. `append` claims keys, too."""

    async def claims(self, after: bytes, limit: int) -> list[Claim]:
        """Claimed keys in the order of their names, after a name."""

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        """Claim keys of requests that were copied or removed; on disk when it returns.

        False: the key leads to another request, which keeps it.
        """
