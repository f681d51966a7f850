"""Events that this process appended itself, kept for whoever follows the log in the same process:
they need not be read and decoded again.

For stores whose positions are given one by one without gaps: what is missing here is another
process's, and the store has it.
"""

from collections.abc import Sequence
from itertools import islice

from gesta.ports.event_store import FOLLOW_BYTES, Append, Recorded
from gesta.runtime.clock import Runtime

LENGTH = 16_384
BYTES = 32 * 1024 * 1024
#: Whoever follows is behind by milliseconds. What retention may have removed meanwhile is older
#: than any of this.
AGE_SECONDS = 60.0


class OwnEvents:
    """By position. Nothing is kept until somebody follows."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._kept: dict[int, Recorded] = {}
        self._bytes = self._newest = 0
        self._is_followed = False
        #: The furthest position from which somebody has asked for more.
        self._asked = -1
        #: When the first of those that are here may have been appended, and the last.
        self._since = self._last = 0.0

    def after(self, position: int, limit: int) -> list[Recorded]:
        """The next events up to our newest, if all of them are here, and no more than
        `EventStore.follow` gives; empty: ask the store.
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
        # Another's lie between.
        return [] if len(found) < limit and position < self._newest else found

    def known(self, events: list[Recorded]) -> list[Recorded]:
        """The same events as the store gave them, our own ones with what their bytes say."""
        kept = self._kept
        return [kept.get(event.position, event) for event in events] if kept else events

    def add_projected(self, appends: Sequence[Append], first: int) -> None:
        """As `add`, of events that the projector needs no more: kept where somebody else is as far
        as these, as a subscription is.
        """
        if self._asked >= first - 1:
            self.add(appends, first)
        else:
            self._newest = max(
                self._newest, first + sum([len(append.events) for append in appends]) - 1
            )

    def add(self, appends: Sequence[Append], first: int) -> None:
        """Call once the commit stands: all events of these appends, from a position on."""
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
        """Some of what is here may be gone from the store."""
        self._kept.clear()
        self._bytes = self._newest = 0

    def _forget_half(self, now: float) -> None:
        for position in list(islice(self._kept, (len(self._kept) + 1) // 2)):
            self._bytes -= len(self._kept.pop(position).data)
        if self._bytes > BYTES:
            self.forget()
        # What is left came later, so this is a little early, which only means that it is forgotten
        # sooner.
        self._since = now - AGE_SECONDS / 2
