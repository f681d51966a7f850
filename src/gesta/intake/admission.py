"""Refuses new requests while the disk is full or the backlog is too long.

The check runs at most once a second, and only while requests arrive.
"""

import asyncio
from collections.abc import Awaitable, Callable

from gesta.errors import Overloaded, StoreError
from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime, spawn
from gesta.runtime.settings import Settings

PERIOD_SECONDS = 1.0
#: A slow check, for instance of a long backlog, runs less often: it uses at most this share of the
#: time.
SHARE_MAX = 0.05
BACKLOG_RETRY_SECONDS = 10.0
DISK_RETRY_SECONDS = 60.0
MEGABYTE = 1024 * 1024

#: The arguments of Overloaded: what is full, what to do, when to try again.
Refusal = tuple[str, str, float]


class Admission:
    def __init__(
        self,
        stores: Stores,
        *,
        position: Callable[[], Awaitable[int]],
        settings: Settings,
        runtime: Runtime,
    ) -> None:
        """`position`: the position up to which the log is projected."""
        self._stores, self._position, self._runtime = stores, position, runtime
        self._backlog_max, self._disk_free_min = (
            settings.backlog_max,
            settings.disk_free_min_mb * MEGABYTE,
        )
        #: Whether the last check found room; most requests read only this.
        self.is_open = False
        self._has_looked = self._is_fresh = False
        self._refusal: Refusal | None = None
        self._looking: asyncio.Task[None] | None = None

    async def ask(self) -> None:
        """Raise Overloaded when there is no room.

        A check that is due runs in the background, unless the last one refused.
        """
        if not self._is_fresh:
            if self._looking is None:
                self._looking = spawn(self._look(), "gesta-admission")
            if self._refusal is not None or not self._has_looked:
                # Shielded: a caller that gives up must not cancel the check for the others.
                await asyncio.shield(self._looking)
        if self._refusal is not None:
            raise Overloaded(*self._refusal)

    async def _look(self) -> None:
        began = self._runtime.monotonic()
        try:
            self._refusal = await self._found()
            self._has_looked = True
        except StoreError:
            # If the store is gone, the append itself raises.
            pass
        finally:
            self._looking, self._is_fresh = None, True
            self.is_open = self._has_looked and self._refusal is None
            leased = self._runtime.monotonic() - began
            self._runtime.call_later(max(PERIOD_SECONDS, leased / SHARE_MAX), self._grow_old)

    def _grow_old(self) -> None:
        self.is_open = self._is_fresh = False

    async def _found(self) -> Refusal | None:
        free, least = await self._stores.disk_free(), self._disk_free_min
        if free is not None and free < least:
            room = (
                f"{free // MEGABYTE:,} MB are free on its disk, less than the {least // MEGABYTE:,}"
                " MB of disk_free_min_mb"
            )
            return f"{self._stores.name}: {room}", "Free space", DISK_RETRY_SECONDS
        unseen = await self._stores.events.behind(await self._position())
        backlog = unseen + await self._stores.job_inspection.count(self._backlog_max)
        if self._stores.outbox is not None:
            backlog += await self._stores.outbox.count(self._backlog_max)
        if backlog >= self._backlog_max:
            return (
                (
                    f"{self._stores.name}: {self._backlog_max:,} requests or more are waiting"
                    " already, which is the limit (backlog_max)"
                ),
                "Check that `gesta serve` runs on it, and what is paused: gesta pause",
                BACKLOG_RETRY_SECONDS,
            )
        return None
