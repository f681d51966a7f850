"""A queue in another database than events and views: ordered steps replace one transaction, and a
crash may happen between them.

It uses the ports only. Dispatch: the projector writes undispatched jobs beside the views;
projector/job_relay.py puts them into the queue. Record: append first, then settle; the worker's
preflight recognises a job that was not settled. Drop: the job goes first and a placeholder takes
its id, so that a concurrent put does nothing; the events follow, then the placeholder goes. A crash
then leaves the placeholder, which is the same job, only later. A crash between drop and placeholder
leaves a request without a job, which the sweeper restores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from msgspec import structs

from gesta.domain.state import State
from gesta.errors import StoreError
from gesta.ports.checkpoints import Move
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, Appended, AppendVerdict
from gesta.ports.fences import Fence, Fences
from gesta.ports.job_queue import (
    Backlog,
    Drop,
    ExternalLeases,
    Job,
    JobHolds,
    JobInspection,
    Settled,
    Settlement,
)
from gesta.ports.read_model import Quarantined, View, key_of
from gesta.ports.stores import Missing, QueuePorts, Stores, required
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording
from gesta.ports.undispatched_jobs import UndispatchedJobs
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.waiting_room import with_waiting_room

#: How long a placeholder keeps a job from being leased: longer than any append. After a crash the
#: job comes so much later.
PLACEHOLDER_MS = 60_000
#: Recordings at a time: one appends its events while another settles its jobs.
AT_ONCE = 2
#: After so many drops of a job that is put again each time, it counts as active.
DROPS = 5


class NoInspection(Missing):
    """For a queue that cannot be inspected: no gauges, and `backlog_max` does not count it."""

    async def count(self, limit: int) -> int:
        return 0

    async def backlog(self) -> dict[str, Backlog]:
        return {}


def with_separate_queue(stores: Stores, queue: QueuePorts, runtime: Runtime) -> Stores:
    """The ports of `stores`, with the queue of another database."""
    jobs = required(
        stores.undispatched_jobs,
        Missing(UndispatchedJobs, stores.name, "a queue in another database needs it"),
    )
    if queue.unique_jobs is None:
        queue = with_waiting_room(queue, stores, runtime)
    holds = required(queue.job_holds, Missing(JobHolds, queue.name, "a pause needs it"))
    inspection = NoInspection(JobInspection, queue.name, "listing jobs needs it")
    external = Missing(ExternalLeases, queue.name, "flows of external workers need it")
    fences = Missing(Fences, queue.name, "copying a store needs it")
    written = Signal(runtime)

    kind = SeparateTransactions if queue.unique_jobs is not None else AtLeastOnceTransactions
    return replace(
        stores,
        queue=queue.queue,
        unique_jobs=queue.unique_jobs,
        job_counts=queue.job_counts,
        eager_jobs=queue.eager_jobs,
        waiting_room=None if queue.unique_jobs is not None else stores.unique_jobs,
        leases_are_durable=queue.leases_are_durable,
        job_inspection=queue.job_inspection or cast(JobInspection, inspection),
        job_holds=holds,
        external_leases=queue.external_leases or cast(ExternalLeases, external),
        foreign_jobs=queue.foreign_jobs,
        transactions=kind(stores, jobs=jobs, queue=queue, written=written),
        fences=SeparateFences(stores.fences, queue.fences or cast(Fences, fences)),
        close=stores.close_after(queue.close),
        undispatched=written,
        projects_inline=False,
        recordings_at_once=AT_ONCE,
    )


class SeparateTransactions:
    """Implements gesta.ports.transactions over two databases."""

    def __init__(
        self, stores: Stores, *, jobs: UndispatchedJobs, queue: QueuePorts, written: Signal
    ) -> None:
        """`written` is set when there are new undispatched jobs."""
        self._events, self._transactions = stores.events, stores.transactions
        self._jobs, self._written = jobs, written
        self._queue, self._now_ms = queue.queue, queue.now_ms
        self._views, self._unique_jobs = stores.read_model, queue.unique_jobs
        self._leases_are_durable = queue.leases_are_durable
        #: Whether jobs may reach the queue without having been undispatched jobs here.
        self._puts_early = queue.eager_jobs is not None

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        return await self._events.append(appends)

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        """No free slot is filled: the jobs are not in the queue when this returns."""
        moved = await self._jobs.save_with_jobs(views, jobs, quarantined, moves)
        if moved and jobs:
            self._written.set()
        return moved

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        return await self._transactions.remove(ended, secrets)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        """Drop, append, settle, each for all entries at once.

        It can be repeated after a failure in the middle.
        """
        dropped = await self._drop(entries)
        appends = {
            n: entry.append
            for n, entry in enumerate(entries)
            if entry.append is not None and dropped.get(n) != "active"
        }
        verdicts = await self._append(entries, appends, dropped)
        settled = dropped | await self._settle(entries, verdicts)
        return [
            # Refused events undo the drop: the job stays as it was.
            Recording(verdicts.get(n), None if _is_refused(verdicts.get(n)) else settled.get(n))
            for n in range(len(entries))
        ]

    async def _drop(self, entries: Sequence[Entry]) -> dict[int, Settled]:
        """The settlements. The placeholder of a dropped job is in the queue on return."""
        drops = {
            n: entry.settlement
            for n, entry in enumerate(entries)
            if isinstance(entry.settlement, Drop)
        }
        dropped: dict[int, Settled] = {}
        for _ in range(DROPS):
            if not drops:
                return dropped
            for n, settled in zip(drops, await self._drop_all([*drops.values()]), strict=True):
                # It was dropped in an earlier round.
                dropped[n] = "done" if dropped.get(n) == "done" and settled == "absent" else settled
            absent = [n for n in drops if dropped[n] == "absent"]
            dropped |= dict.fromkeys(await self._lost(entries, absent), "active")
            gone = {
                n: job
                for n in drops
                if dropped[n] != "active" and (job := entries[n].dropped) is not None
            }
            due_ms = self._now_ms() + PLACEHOLDER_MS
            held = (
                await self._queue.put(
                    [structs.replace(job, due_ms=due_ms) for job in gone.values()]
                )
                if gone
                else []
            )
            # The relay has put the others again: a worker may have leased them.
            drops = {n: drops[n] for n, is_held in zip(gone, held, strict=True) if not is_held}
        return dropped | dict.fromkeys(drops, "active")

    async def _lost(self, entries: Sequence[Entry], absent: Sequence[int]) -> list[int]:
        """Entries whose job was dispatched and is gone while the request still waits for it.

        The queue lost the job, and maybe its lease. It counts as active until the sweeper restores
        it as possibly executed.
        """
        # Where leases may be lost, the events say whether an attempt has begun.
        if not self._leases_are_durable or self._unique_jobs is None:
            return []
        job_ids = {n: job.id for n in absent if (job := entries[n].dropped) is not None}
        asked = {
            n: (key_of(view.state), append)
            for n in job_ids
            if (view := entries[n].view) is not None and (append := entries[n].append) is not None
        }
        if not asked:
            return []
        views = await self._views.get([key for key, _ in asked.values()])
        waiting = {
            n: append
            for n, (key, append) in asked.items()
            if (view := views.get(key)) is not None
            and view.state.version == append.expected
            and view.state.wants == "execute"
            and not view.state.is_far
        }
        # A request that has moved on: its job has ended, and the append will be refused.
        moved = (
            {
                recorded.stream
                for recorded in await self._events.read(
                    [(append.stream, append.expected) for append in waiting.values()]
                )
            }
            if waiting
            else set()
        )
        # One that the relay put after the drop: it is dropped again.
        live = await self._unique_jobs.find([job_ids[n] for n in waiting]) if waiting else set()
        return [
            n
            for n, append in waiting.items()
            if append.stream not in moved and job_ids[n] not in live
        ]

    async def _drop_all(self, drops: Sequence[Drop]) -> list[Settled]:
        """From the queue and from the undispatched jobs."""
        # The queue first: if it is down, nothing has been removed.
        settled = await self._queue.settle(drops)
        gone = [
            one.job_id for one, answer in zip(drops, settled, strict=True) if answer != "active"
        ]
        removed = await self._jobs.remove_undispatched(gone) if gone else set()
        return [
            "done" if one.job_id in removed else answer
            for one, answer in zip(drops, settled, strict=True)
        ]

    async def _append(
        self,
        entries: Sequence[Entry],
        appends: Mapping[int, Append],
        dropped: Mapping[int, Settled],
    ) -> dict[int, AppendVerdict]:
        held = {n: job for n in appends if n in dropped and (job := entries[n].dropped) is not None}
        removed = {
            n: job
            for n, job in held.items()
            if dropped[n] == "done" or self._may_be_coming(appends[n], job, dropped[n])
        }
        try:
            verdicts = (
                dict(zip(appends, await self._events.append([*appends.values()]), strict=True))
                if appends
                else {}
            )
        except StoreError:
            # If only the answer was lost, the job points to a request that needs none: harmless.
            await self._let_go(held, removed)
            raise
        await self._let_go(held, {n: job for n, job in removed.items() if _is_refused(verdicts[n])})
        return verdicts

    def _may_be_coming(self, append: Append, job: Job, dropped: Settled) -> bool:
        """Whether a job that was not found may be on its way from a projector to the queue, which
        has our placeholder instead. A job that is put back needlessly is outdated: harmless.
        """
        return (
            self._puts_early
            and dropped == "absent"
            and append.expected == job.dispatch_version
            and not job.possibly_executed
        )

    async def _let_go(self, held: Mapping[int, Job], wanted: Mapping[int, Job]) -> None:
        """Remove the placeholders, and put the wanted jobs back as undispatched."""
        if held:
            # From the queue alone: an undispatched job of the same id stays.
            await self._queue.settle([Drop(job.id) for job in held.values()])
        if wanted:
            # After the placeholders: the relay does not replace them.
            await self._jobs.save_with_jobs([], [*wanted.values()], [], [])
            self._written.set()

    async def _settle(
        self, entries: Sequence[Entry], verdicts: Mapping[int, AppendVerdict]
    ) -> dict[int, Settled]:
        """Ack and release what was recorded.

        After a crash before this, the next worker finds the job done or not yet due.
        """
        chosen: dict[int, Settlement] = {}
        for n, entry in enumerate(entries):
            if (
                entry.settlement is not None
                and not isinstance(entry.settlement, Drop)
                and not _is_refused(verdicts.get(n))
            ):
                chosen[n] = entry.settlement
        return (
            dict(zip(chosen, await self._queue.settle([*chosen.values()]), strict=True))
            if chosen
            else {}
        )


class AtLeastOnceTransactions(SeparateTransactions):
    """The same for a queue without UniqueJobs: no job can be dropped from it, so the events decide
    alone.
    """

    async def _drop(self, entries: Sequence[Entry]) -> dict[int, Settled]:
        """A request whose attempt has begun is active. Nothing is removed before the append: a
        worker that takes the job meanwhile loses or wins the race for the version.
        """
        return {
            n: "active" if entry.dropped is not None and entry.dropped.possibly_executed else "done"
            for n, entry in enumerate(entries)
            if isinstance(entry.settlement, Drop)
        }

    async def _append(
        self,
        entries: Sequence[Entry],
        appends: Mapping[int, Append],
        dropped: Mapping[int, Settled],
    ) -> dict[int, AppendVerdict]:
        verdicts = (
            dict(zip(appends, await self._events.append([*appends.values()]), strict=True))
            if appends
            else {}
        )
        gone = [
            settlement.job_id
            for n, verdict in verdicts.items()
            if not _is_refused(verdict) and isinstance(settlement := entries[n].settlement, Drop)
        ]
        if gone:
            # What is left after a crash is outdated, and the worker that takes it deletes it.
            await self._jobs.remove_undispatched(gone)
            await self._queue.settle([Drop(job_id) for job_id in gone])
        return verdicts


class SeparateFences:
    """A fence around both databases. Implements gesta.ports.fences.

    After a crash in the middle, repeat the call.
    """

    def __init__(self, events: Fences, queue: Fences) -> None:
        self._events, self._queue = events, queue

    async def put_up(self, fence: Fence) -> None:
        # The queue first: a leased job needs the event store to record its outcome.
        if fence.tenant is None:
            await self._queue.put_up(fence)
        await self._events.put_up(fence)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        # The event store last: `standing` reads it.
        await self._queue.take_down(fence, jobs)
        await self._events.take_down(fence)

    async def standing(self) -> list[Fence]:
        return await self._events.standing()


def _is_refused(verdict: AppendVerdict | None) -> bool:
    return verdict is not None and not isinstance(verdict, Appended)
