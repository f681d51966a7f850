"""Port: the views, what the projector folded from events, and how far it got.

Disposable: a rebuild gives the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import msgspec

from gesta.domain.state import State
from gesta.ports.job_queue import Job


class View(msgspec.Struct, frozen=True, gc=False):
    """A request as everybody but the event store sees it: `state.id`, `state.status`,
    `state.reason` and more; the payload as JSON, what is personal in it sealed.
    """

    state: State
    payload: bytes


class Quarantined(msgspec.Struct, frozen=True, gc=False):
    """An event or job that could not be processed; set aside and reported so that the rest goes
    on.
    """

    what: str
    tenant: str
    stream: str
    version: int
    error: str
    at_ms: int


def dispatched_of(name: str) -> str:
    """The checkpoint that says how far jobs have been put of what is projected under the checkpoint
    `name`: `dispatched/3` of `projector/3`.
    """
    return f"dispatched{name.removeprefix('projector')}"


class Move(msgspec.Struct, frozen=True, gc=False):
    """A place in the log, moved by compare-and-set: two projectors at once cannot both move it."""

    name: str
    before: int
    after: int
    #: Where `dispatched_of(name)` stood for whoever folded. A rebuild has swapped the views since
    #: if it stands elsewhere: then nothing
    #: is written, even where it turned the checkpoint back to this very place. None: nothing was
    #: folded.
    dispatched: int | None = None


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """How far somebody who follows the log has got, and what keeps them from going on."""

    name: str
    position: int
    error: str = ""
    #: Since when it fails.
    failed_at_ms: int | None = None


class RoleLease(msgspec.Struct, frozen=True, gc=False):
    """A role, who played it last, and until when that lease lasts or lasted."""

    name: str
    owner: str
    until_ms: int

    def is_held(self, now_ms: int) -> bool:
        """A lease that ends later than any lasts was made before the clock was set back: nobody
        holds that one.
        """
        return now_ms < self.until_ms <= now_ms + 600_000


def fair_part(parts: Sequence[RoleLease], owner: str, now_ms: int) -> list[str]:
    """Which parts of a role somebody should hold who asks for it now: what they have, what is free,
    and what others have too much of.

    Nobody takes from one who would then have less than the least that everybody gets, so that it
    comes to rest.
    """
    mine = [part.name for part in parts if part.owner == owner]
    others: dict[str, list[str]] = {}
    for part in parts:
        if part.owner != owner and part.is_held(now_ms):
            others.setdefault(part.owner, []).append(part.name)
    least, over = divmod(len(parts), len(others) + 1)
    most = least + (over > 0)
    free = [part.name for part in parts if part.owner != owner and not part.is_held(now_ms)]
    mine += free[: max(0, most - len(mine))]
    # Whoever has most gives first.
    spare = sorted(
        (
            (nth, name)
            for names in others.values()
            for nth, name in enumerate(names)
            if nth >= least
        ),
        reverse=True,
    )
    return mine + [name for _, name in spare[: max(0, least - len(mine))]]


class Filter(msgspec.Struct, frozen=True, gc=False):
    """Which requests to list, newest first; `before_id` continues a listing."""

    tenant: str
    flow: str | None = None
    status: str | None = None
    before_id: str | None = None
    limit: int = 50


#: Flow, tenant, request id. The id alone tells no request from all others: some flows let callers
#: bring their own.
Key = tuple[str, str, str]


def key_of(state: State) -> Key:
    return state.flow, state.tenant, state.id


#: Tenant, flow, request id: a place in the order in which `old` goes through the views.
ViewPosition = tuple[str, str, str]

#: Where a walk through the requests without a job goes on. What is in it is the store's own affair.
Cursor = tuple[Any, ...]
FROM_THE_START: Cursor = ()

#: The statuses in which a request may want a job.
WANTING = ("queued", "unknown")


def should_have_a_job(state: State, sweep_at_ms: int | None, before_ms: int) -> bool:
    """Whether somebody should have put and taken its job before that.

    `sweep_at_ms`: when the sweep looks at it next, as it is stored.
    """
    is_put = not state.is_far or sweep_at_ms != state.sweep_at
    return state.wants is not None and is_put and (state.due_at or 0) < before_ms


class ReadModel(Protocol):
    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        """The views of these requests. May lag behind the events; never shows another tenant's."""
        ...

    async def save(
        self, views: Sequence[View], quarantined: Sequence[Quarantined], move: Move | None
    ) -> bool:
        """Write views and checkpoint together; False when another projector moved the checkpoint:
        nothing was written.
        """
        ...

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        """As `save`, and these jobs are pending from the same commit on: to be put into a queue of
        another database.

        One that is pending already stays as it is. Of several moves all are made or none, and then
        nothing is written.
        """
        ...

    async def undispatched(self, limit: int) -> list[Job]:
        """Jobs that wait to be put, the tenants in turn: whoever has many pending waits behind
        itself.

        They stay pending.
        """
        ...

    async def are_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are pending."""
        ...

    async def relayed(self, job_ids: Sequence[str]) -> set[str]:
        """These are in the queue, or nobody wants them there any more: pending no longer.

        Which of them were.
        """
        ...

    async def checkpoint(self, name: str) -> int:
        """Where it stands; 0 when it was never begun nor moved."""
        ...

    async def checkpoints(self) -> list[Checkpoint]:
        """All of them, by name."""
        ...

    async def begin(self, name: str, position: int) -> int:
        """Make the checkpoint there unless it exists, on disk before this returns; where it
        stands.
        """
        ...

    async def forget(self, name: str) -> None:
        """Nobody follows the log under this name any more: the checkpoint is gone, and holds
        nothing back.
        """
        ...

    async def stuck(self, name: str, error: str, at_ms: int) -> None:
        """Note what keeps a checkpoint from moving; the first time stays, and the next move forgets
        it.
        """
        ...

    async def find(self, chosen: Filter) -> list[View]: ...

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests per (flow, status)."""
        ...

    async def due(self, now_ms: int, limit: int) -> tuple[list[View], int | None]:
        """Requests whose `sweep_at` has come, earliest first, and when the next one comes."""
        ...

    async def postpone(self, looked_at: Sequence[tuple[State, int | None]]) -> None:
        """The sweep has dealt with these: look again then, or not at all; unless the request has
        changed since.
        """
        ...

    async def stale(
        self, before_ms: int, after: Cursor, limit: int
    ) -> tuple[list[State], Cursor | None]:
        """Requests that should have a job and have not changed since, among the `limit` next ones;
        and where to go on, None at the end.

        In an order of the store's own: what a page costs must not grow with how many requests are
        open. A page may be empty long before the end.
        Whoever goes on until the end meets every request that stays as it is meanwhile. One that is
        due beyond what a queue may hold has a job
        from when the sweep has looked at it.
        """
        ...

    async def old(
        self, before_ms: int, after: ViewPosition, limit: int, foreign: Collection[str] = ()
    ) -> tuple[list[State], ViewPosition | None]:
        """Ended requests that have not changed since, among the `limit` next ones behind a place;
        and where to go on, if anywhere.

        Our ids tell when they were made: what is newer is passed over without being looked at. Not
        so in `foreign` flows, whose ids callers may bring.
        """
        ...

    async def undecided(self) -> tuple[int, int | None]:
        """How many requests of all tenants wait for a person's word, and since when the oldest
        does.
        """
        ...

    async def quarantined(self, tenant: str | None, limit: int) -> list[Quarantined]: ...

    async def claim(self, name: str, owner: str, lease_seconds: float) -> bool:
        """Take or renew the lease on a role that one process at a time should play."""
        ...

    async def share(self, role: str, count: int, owner: str, lease_seconds: float) -> set[int]:
        """Take or renew leases on parts of a role that several processes divide, called `role/0` to
        `role/{count - 1}`: which are ours now.

        Everybody gets about as many (`fair_part`). A lease of no length gives all of ours up. While
        another process holds `role` itself,
        nobody has a part, and ours are given up.
        """
        ...

    async def roles(self) -> list[RoleLease]:
        """Every role that was ever played, by name."""
        ...

    async def shadow(self) -> Shadow:
        """A second, empty set of views beside the ones in use, which go on unchanged.

        What an earlier one left is dropped.
        """
        ...


class Shadow(Protocol):
    """Views on their way to replace those in use."""

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        """As in Views, of what was saved here."""
        ...

    async def save(self, views: Sequence[View]) -> None: ...

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        """In one commit these become the views, the parked events become these, and the checkpoints
        `names` go back to `position`.

        Where each stood becomes its `dispatched_of`, unless that is further already: jobs up to
        there have been put. Parked
        jobs, pending ones and other checkpoints stay. False, and nothing changes, when one of them
        stands before `position`, or when requests
        were removed since the shadow was made: it may still have them.
        """
        ...
