"""A filtered catch-up subscription that is read page by page.

The position of the reader is kept by gesta (ports/checkpoints.py), not by the server. A position
is the commit position of an event. Appends to one stream give each event a commit position of its
own, so a page may end anywhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from kurrentdbclient import CaughtUp, Checkpoint, RecordedEvent
from kurrentdbclient.common import AbstractAsyncCatchupSubscription

from gesta.errors import StoreError
from gesta.ports.event_store import FOLLOW_BYTES
from gesta.runtime.clock import Runtime, Signal, spawn
from gesta.stores.kurrentdb.connection import Connection

#: So many events are read ahead; FOLLOW_BYTES limits them, too.
AHEAD = 2_000
#: How long a page may take that the server has announced.
PAGE_SECONDS = 10.0


class Follower:
    """Call `start`, then `page`; `close` at the end or after an error."""

    def __init__(
        self,
        connection: Connection,
        *,
        pattern: str,
        after: int,
        arrived: Callable[[], None],
        runtime: Runtime,
    ) -> None:
        """`arrived` is called for each event."""
        self._connection, self._pattern, self._arrived = connection, pattern, arrived
        self._runtime = runtime
        #: Up to where pages were taken, and up to where the server has sent or passed events.
        self.taken = self._reached = after
        self._ahead: deque[RecordedEvent] = deque()
        self._bytes = 0
        self._error: BaseException | None = None
        self._changed = Signal(runtime)
        self._room = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    async def start(self) -> None:
        async with self._connection.errors():
            subscription = await self._connection.subscribe(self._pattern, self.taken)
        self._pump = spawn(self._read(subscription), "gesta-kurrentdb-follower")

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    async def page(self, limit: int, end: int) -> list[RecordedEvent]:
        """The next events, at most `limit` and up to FOLLOW_BYTES; `end`: events up to this
        position exist, and are waited for.
        """
        until = self._runtime.monotonic() + PAGE_SECONDS
        while not (self.is_full(limit) or self._reached >= end):
            if self._error is not None:
                raise self._failed()
            if self._runtime.monotonic() >= until:
                raise StoreError(
                    f"{self._connection.address.name}: the subscription does not deliver the events"
                    " that the server has; gesta starts it again"
                )
            await self._changed.wait(PAGE_SECONDS)
        found: list[RecordedEvent] = []
        size = 0
        while self._ahead and len(found) < limit and size < FOLLOW_BYTES:
            event = self._ahead.popleft()
            found.append(event)
            size += len(event.data)
        self._bytes -= size
        self.taken = found[-1].commit_position if found else self.taken
        self._room.set()
        return found

    def is_full(self, limit: int) -> bool:
        """Whether a page can be taken without waiting."""
        return len(self._ahead) >= min(limit, AHEAD) or self._bytes >= FOLLOW_BYTES

    def _failed(self) -> StoreError:
        return StoreError(
            f"{self._connection.address.name}: the subscription ended"
            f" ({self._error or type(self._error).__name__}); gesta starts it again"
        )

    async def _read(self, subscription: AbstractAsyncCatchupSubscription) -> None:
        try:
            async for message in subscription:
                self._take(message)
                while self.is_full(AHEAD):
                    self._room.clear()
                    await self._room.wait()
            raise StoreError("the server ended it")
        except Exception as error:  # noqa: BLE001 -- it is raised to the reader of the next page
            self._error = error
        finally:
            self._changed.set()
            self._arrived()
            with suppress(Exception):
                await subscription.stop()

    def _take(self, message: RecordedEvent | Checkpoint | CaughtUp) -> None:
        if isinstance(message, Checkpoint | CaughtUp):
            self._reached = max(self._reached, message.commit_position or 0)
        elif message.commit_position <= self._reached and message.commit_position > self.taken:
            raise StoreError(
                f"two events have the commit position {message.commit_position}: another program"
                " wrote to gesta's streams in a transaction"
            )
        elif message.commit_position > self.taken:
            self._reached = message.commit_position
            self._ahead.append(message)
            self._bytes += len(message.data)
            self._arrived()
        self._changed.set()
