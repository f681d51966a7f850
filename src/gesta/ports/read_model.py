"""Port: the views, which the projector folds from events. A rebuild gives the same views."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import msgspec

from gesta.domain.state import State
from gesta.ports.checkpoints import Move


class View(msgspec.Struct, frozen=True, gc=False):
    """A request as all parts except the event store see it: its state, and its payload as JSON with
    encrypted personal fields.
    """

    state: State
    payload: bytes


class Quarantined(msgspec.Struct, frozen=True, gc=False):
    """An event or job that could not be processed; kept and reported, so that the others
    continue.
    """

    what: str
    tenant: str
    stream: str
    version: int
    error: str
    at_ms: int


class Filter(msgspec.Struct, frozen=True, gc=False):
    """Which requests to list, newest first; `before_id` continues a listing."""

    tenant: str
    flow: str | None = None
    status: str | None = None
    before_id: str | None = None
    limit: int = 50


#: Flow, tenant, request id. The id alone is not unique: some flows let callers choose ids.
Key = tuple[str, str, str]


def key_of(state: State) -> Key:
    return state.flow, state.tenant, state.id


#: Tenant, flow, request id: a position in the order in which `SweepIndex.old` reads the views.
ViewPosition = tuple[str, str, str]

#: The position of `SweepIndex.stale`; opaque outside the store.
Cursor = tuple[Any, ...]
FROM_THE_START: Cursor = ()

#: The statuses in which a request may want a job.
WANTING = ("queued", "unknown")
#: The statuses of success, which most requests have: an index by status may leave them out.
UNINDEXED = ("sent", "completed")


def should_have_a_job(state: State, sweep_at_ms: int | None, before_ms: int) -> bool:
    """Whether its job should have been put and leased before that.

    `sweep_at_ms`: when the sweeper looks at it next, as it is stored.
    """
    is_put = not state.is_far or sweep_at_ms != state.sweep_at
    return state.wants is not None and is_put and (state.due_at or 0) < before_ms


class ReadModel(Protocol):
    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        """The views of these requests. May lag behind the events; never shows another tenant's."""

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        """Views that are newer than the stored ones, quarantined events or jobs, and checkpoints,
        in one commit.

        False: another projector moved one of the checkpoints; nothing was written.
        """

    async def find(self, chosen: Filter) -> list[View]:
        """A page of one tenant's requests, newest first."""

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests per (flow, status)."""

    async def undecided(self) -> tuple[int, int | None]:
        """How many requests of all tenants wait for an operator's decision, and since when the
        oldest does.
        """

    async def unsettled(self, failed_since_ms: int) -> dict[tuple[str, str], int]:
        """How many requests of all tenants per (flow, status): those that are unknown, and those
        that failed since then and were not purged.
        """

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]:
        """Quarantined events and jobs of one tenant or all, newest first."""

    async def shadow(self) -> Shadow:
        """A second, empty set of views beside the ones in use, which stay unchanged.

        The rest of an earlier shadow is dropped.
        """


class Shadow(Protocol):
    """Views that are to replace those in use."""

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        """As ReadModel.get, of the views saved here."""

    async def save(self, views: Sequence[View]) -> None: ...

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        """In one commit: replace the views and the quarantined events, and move the checkpoints
        `names` back to `position`.

        The former position of each becomes its `dispatched_of`, unless that is further already:
        jobs up to there have been put. Quarantined jobs, undispatched jobs and other checkpoints
        stay. False, and nothing changes, if one of the checkpoints is before `position`, or if
        requests were removed since the shadow was made: the shadow may still have them.
        """


class SweepIndex(Protocol):
    """The requests that the sweeper, retention and alarms have to look at."""

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        """Requests whose `sweep_at` has passed, earliest first, and the next `sweep_at`."""

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        """Set when the sweeper looks at these requests next, or never; unless the request has
        changed since.
        """

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """Requests that should have a job and have not changed since `before_ms`, among the next
        `limit`; and the next cursor, None at the end.

        The order is the store's own: the cost of a page must not grow with the number of open
        requests. A page may be empty long before the end. A walk to the end finds every request
        that does not change meanwhile. A request that is due later than a queue holds jobs has a
        job once the sweeper has looked at it.
        """

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """Ended requests that have not changed since `before_ms`, among the next `limit` after a
        position; and the next position, None at the end.

        Ids contain their creation time, so newer requests are skipped; except in `foreign` flows,
        whose ids callers may choose.
        """

    async def unknown(self, flow: str, limit: int) -> list[State]:
        """The requests of a flow, of all tenants, whose outcome is unknown; the one that has been
        unchanged for the longest time comes first.
        """
