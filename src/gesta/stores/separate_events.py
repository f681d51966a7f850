"""Events in another database than views, checkpoints, jobs and vault: ordered steps replace one
transaction, and a crash may happen between them.

The event is the record; everything else follows from it and can be repeated. Append: events only,
the projector does the rest. Project: one commit of the durable store, as ever. Record: the events
first, then the job (stores/separate_queue.py). Removal: the events first. A crash then leaves a
view, which the next walk of retention removes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from gesta.domain.state import State
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, EventRemoval, NewEvent
from gesta.ports.fences import Fence, Fences
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Quarantined, View
from gesta.ports.stores import EventPorts, Missing, Stores, required
from gesta.ports.transactions import NO_SECRETS
from gesta.ports.undispatched_jobs import UndispatchedJobs
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.separate_queue import SeparateTransactions

#: The checkpoint, in a store that only holds events here, up to which they may be removed.
REMOVAL = "removal"
#: The type of an event that stands, for a moment, for one that is removed elsewhere.
REMOVED = "Removed"


def with_separate_events(stores: Stores, events: EventPorts, runtime: Runtime) -> Stores:
    """The ports of `stores`, with the events and key claims of another database."""
    jobs = required(
        stores.undispatched_jobs,
        Missing(UndispatchedJobs, stores.name, "events in another database need it"),
    )
    written = Signal(runtime)
    combined = replace(stores, events=events.events, key_claims=events.key_claims)

    return replace(
        combined,
        transactions=SeparateEventTransactions(
            combined, jobs=jobs, written=written, own=stores, removal=events.event_removal
        ),
        fences=SeparateEventFences(stores.fences, events.fences),
        close=stores.close_after(events.close),
        undispatched=written,
        projects_inline=False,
        # It is in the database of the callers' transactions, and the events are not.
        outbox=None,
    )


class SeparateEventTransactions(SeparateTransactions):
    """Implements gesta.ports.transactions: the queue is beside the views, the events are not."""

    def __init__(
        self,
        stores: Stores,
        *,
        jobs: UndispatchedJobs,
        written: Signal,
        own: Stores,
        removal: EventRemoval,
    ) -> None:
        super().__init__(stores, jobs=jobs, queue=own, written=written)
        self._own, self._removal = own, removal

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        return await self._own.transactions.project(views, jobs, quarantined, moves, free_slots)

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        """The durable store removes a view together with events of its own: it gets some for the
        purpose, as many as the request had.
        """
        passed = await self._passed()
        streams = [(stream, state.version) for stream, state in ended]
        answers = await self._removal.remove_streams(streams, passed)
        gone = [one for one, is_gone in zip(ended, answers, strict=True) if is_gone]
        if gone:
            await self._own.events.append([_placeholder(*one) for one in gone])
        return await self._own.transactions.remove(gone, secrets) if gone else 0

    async def _passed(self) -> int:
        """Up to where every consumer of the log has read. `dispatched` follows nothing."""
        found = await self._own.checkpoints.checkpoints()
        return min(
            (one.position for one in found if not one.name.startswith("dispatched")), default=0
        )


def _placeholder(stream: str, state: State) -> Append:
    return Append(
        stream,
        0,
        tuple(
            NewEvent(sha256(f"{stream}\0{number}".encode()).digest()[:16], REMOVED, b"{}", b"{}")
            for number in range(state.version)
        ),
    )


class SeparateEventFences:
    """A fence around both databases. Implements gesta.ports.fences.

    After a crash in the middle, repeat the call.
    """

    def __init__(self, own: Fences, events: Fences) -> None:
        self._own, self._events = own, events

    async def put_up(self, fence: Fence) -> None:
        # The events last: a leased job needs them to record its outcome.
        await self._own.put_up(fence)
        if fence.kind == "left":
            await self._events.put_up(fence)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        # The own store last: `standing` reads it.
        if fence.kind == "left":
            await self._events.take_down(fence)
        await self._own.take_down(fence, jobs)

    async def standing(self) -> list[Fence]:
        return await self._own.standing()


def events_of(stores: Stores) -> EventPorts:
    """A whole store that is used for its events alone."""
    return EventPorts(
        events=stores.events,
        key_claims=stores.key_claims,
        event_removal=_Removal(stores),
        fences=stores.fences,
        close=stores.close,
        name=stores.name,
    )


class _Removal:
    """Implements EventRemoval: the checkpoint `removal` takes the place of all that are
    elsewhere.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def remove_streams(self, streams: Sequence[tuple[str, int]], passed: int) -> list[bool]:
        checkpoints = self._stores.checkpoints
        before = await checkpoints.begin(REMOVAL, passed)
        if before < passed:
            await checkpoints.move([Move(REMOVAL, before, passed)])
        if before <= passed:
            await self._stores.transactions.remove(
                [(stream, _state(stream, version)) for stream, version in streams]
            )
        left = {one.stream for one in await self._stores.events.read([(s, 0) for s, _ in streams])}
        return [stream not in left for stream, _ in streams]


def _state(stream: str, version: int) -> State:
    """The view of this request is in another database."""
    return State(
        id=stream,
        tenant="",
        flow="",
        status="completed",
        phase="ended",
        version=version,
        created_at=0,
        updated_at=0,
        dispatch_version=1,
    )
