"""Events that this process appended, kept for its own followers of the log: they need not read and
decode them again.

For stores whose positions have no gaps: a missing position is an event of another process.
"""

from collections.abc import Sequence
from itertools import islice

from gesta.ports.event_store import FOLLOW_BYTES, Append, Recorded
from gesta.runtime.clock import Runtime

LENGTH = 16_384
BYTES = 32 * 1024 * 1024
#: Followers are behind by milliseconds. Retention removes only older events.
AGE_SECONDS = 60.0


class OwnEvents:
    """Keeps nothing until a follower asks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._kept: dict[int, Recorded] = {}
        self._bytes = self._newest = 0
        self._is_followed = False
        #: The highest position after which a follower has asked.
        self._asked = -1
        #: When the oldest kept event was appended at the earliest, and the newest one.
        self._since = self._last = 0.0

    def after(self, position: int, limit: int) -> list[Recorded]:
        """The next events up to our newest, if all are kept, and no more than `EventStore.follow`
        returns; empty: read the store.
        """
        self._is_followed, self._asked = True, max(self._asked, position)
        kept = self._kept
        found: list[Recorded] = []
        size = 0
        while len(found) < limit and (event := kept.get(position + 1)) is not None:
            found.append(event)
            position += 1
            size += len(event.data)
            if size >= FOLLOW_BYTES:
                return found
        # There are events of other processes in between.
        return [] if len(found) < limit and position < self._newest else found

    def known(self, events: list[Recorded]) -> list[Recorded]:
        """The same events, our own ones decoded."""
        kept = self._kept
        return [kept.get(event.position, event) for event in events] if kept else events

    def add_projected(self, appends: Sequence[Append], first: int, last: int) -> None:
        """As `add`, for events that are projected already: kept only if another follower, such as a
        subscription, has read up to them. `last`: the position of the last event.
        """
        if self._asked >= first - 1:
            self.add(appends, first)
        else:
            self._newest = max(self._newest, last)

    def add(self, appends: Sequence[Append], first: int) -> None:
        """Call after the commit of these appends; `first` is the position of their first event."""
        if not self._is_followed:
            return
        now = self._runtime.monotonic()
        if now - self._last > AGE_SECONDS:
            self.forget()
        if not self._kept:
            self._since = now
        self._last = now
        kept, position = self._kept, first
        for append in appends:
            version = append.expected
            for event in append.events:
                version += 1
                kept[position] = Recorded(
                    position,
                    append.stream,
                    version,
                    event.id,
                    event.type,
                    event.data,
                    event.meta,
                    event.known,
                )
                self._bytes += len(event.data)
                position += 1
        self._newest = max(self._newest, position - 1)
        if len(kept) > LENGTH or self._bytes > BYTES or now - self._since > AGE_SECONDS:
            self._forget_half(now)

    def forget(self) -> None:
        """Call when kept events may have been removed from the store."""
        self._kept.clear()
        self._bytes = self._newest = 0

    def _forget_half(self, now: float) -> None:
        for position in list(islice(self._kept, (len(self._kept) + 1) // 2)):
            self._bytes -= len(self._kept.pop(position).data)
        if self._bytes > BYTES:
            self.forget()
        # Earlier than the time of the remaining events: they are forgotten a little sooner.
        self._since = now - AGE_SECONDS / 2
