"""The queue in another database than events and views: what is one transaction elsewhere becomes
steps in an order that a crash may cut.

Speaks to the ports only. Dispatch: the projector writes jobs down as pending beside the views,
relay.py puts them. Record: append first, then
settle; a job that was not settled is met again by the worker's guard. Drop: the job goes first and
a placeholder takes its place, so that
whoever is just putting it puts nothing; the events follow, then the placeholder goes. A crash then
leaves the placeholder, which is the
same job, only later; between drop and placeholder it leaves a request without a job, which the
sweep restores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from gesta.domain.state import State
from gesta.errors import StoreError
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, Appended, AppendVerdict, EventStore
from gesta.ports.fences import Fence, Fences
from gesta.ports.job_queue import (
    Backlog,
    Drop,
    HeldJob,
    Job,
    JobQueue,
    LeasedJob,
    QueueStanding,
    Settled,
    Settlement,
)
from gesta.ports.read_model import Move, Quarantined, ReadModel, View
from gesta.ports.stores import Stores
from gesta.ports.transactions import Entry, Projection, Recording, Transactions
from gesta.runtime.clock import Runtime, Signal

#: How long a placeholder keeps a job from being taken: longer than any append, and after a crash as
#: late as the job then comes.
PLACE_HELD_MS = 60_000
#: Somebody puts a job as often as we drop it: then it is not ours to drop.
DROPS = 5


def with_separate_queue(stores: Stores, queue: Stores, runtime: Runtime) -> Stores:
    """The ports of `stores`, with the queue of another store."""
    news = Signal(runtime)
    jobs = SeparateQueue(queue.queue, stores.read_model)

    async def close() -> None:
        try:
            await queue.close()
        finally:
            await stores.close()

    commits = SeparateTransactions(
        stores.events, stores.read_model, jobs, news, stores.transactions, queue.now_ms
    )
    fences = SeparateFences(stores.fences, queue.fences)
    return replace(
        stores,
        queue=jobs,
        transactions=commits,
        fences=fences,
        close=close,
        undispatched=news,
        projects_inline=False,
    )


class SeparateQueue:
    """A queue whose pending jobs count as live.

    Implements gesta.ports.job_queue; the docstrings there are the promise.
    """

    def __init__(self, queue: JobQueue, views: ReadModel) -> None:
        self._queue, self._views = queue, views

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        return await self._queue.put(jobs)

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        return await self._queue.take(token, flows, lease_seconds, durable=durable)

    async def leased_by(self, token: str) -> list[LeasedJob]:
        return await self._queue.leased_by(token)

    async def extend(self, token: str, lease_seconds: float) -> bool:
        return await self._queue.extend(token, lease_seconds)

    async def lease_external(
        self, token: str, external_queue: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        return await self._queue.lease_external(token, external_queue, limit, lease_seconds)

    async def prolong(self, job_id: str, token: str, lease_seconds: float) -> int | None:
        return await self._queue.prolong(job_id, token, lease_seconds)

    async def expired_leases(
        self, token: str, external_queues: str, limit: int, lease_seconds: float
    ) -> list[LeasedJob]:
        return await self._queue.expired_leases(token, external_queues, limit, lease_seconds)

    async def stocked(self, external_queues: Sequence[str]) -> set[str]:
        return await self._queue.stocked(external_queues)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        # The queue first: if it is down, nothing has been taken away.
        settled = await self._queue.settle(settlements)
        gone = [
            one.job_id
            for one, answer in zip(settlements, settled, strict=True)
            if isinstance(one, Drop) and answer != "active"
        ]
        withdrawn = await self._views.relayed(gone) if gone else set()
        return [
            "done" if isinstance(one, Drop) and one.job_id in withdrawn else answer
            for one, answer in zip(settlements, settled, strict=True)
        ]

    async def drop(self, job_ids: Sequence[str]) -> None:
        """From the queue alone: what is pending under the same id stays."""
        await self._queue.settle([Drop(job_id) for job_id in job_ids])

    async def find(self, job_ids: Sequence[str]) -> set[str]:
        # Pending first: a job on its way is put before it is no longer pending, so one of the two
        # looks sees it.
        undispatched = await self._views.are_undispatched(job_ids)
        return undispatched | await self._queue.find(job_ids)

    async def ready(self, timeout_seconds: float) -> None:
        await self._queue.ready(timeout_seconds)

    async def unhold(self, scope: str, limit: int) -> int:
        return await self._queue.unhold(scope, limit)

    async def held(self) -> list[HeldJob]:
        return await self._queue.held()

    async def count(self, limit: int) -> int:
        return await self._queue.count(limit)

    async def backlog(self) -> dict[str, Backlog]:
        return await self._queue.backlog()

    async def jobs(self, after_id: str, limit: int) -> list[QueueStanding]:
        return await self._queue.jobs(after_id, limit)


class SeparateTransactions:
    """Implements gesta.ports.transactions over ports that share no database."""

    def __init__(
        self,
        events: EventStore,
        views: ReadModel,
        queue: SeparateQueue,
        news: Signal,
        together: Transactions,
        now_ms: Callable[[], int],
    ) -> None:
        """`together` commits what concerns events and views alone: these two share a database.

        `now_ms` is the queue's clock.
        """
        self._events, self._views, self._queue, self._news = events, views, queue, news
        self._together, self._now_ms = together, now_ms

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
        """Nobody's slots are taken: the jobs are not in the queue when this returns."""
        moved = await self._views.save_with_jobs(views, jobs, quarantined, moves)
        if moved and jobs:
            self._news.set()
        return moved

    async def remove(self, ended: Sequence[tuple[str, State]]) -> int:
        return await self._together.remove(ended)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        """Drop, append, settle, each for all entries at once.

        Repeated after a failure in the middle it comes to the same end.
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
            # Refused events undo the drop: then nothing became of the job.
            Recording(verdicts.get(n), None if _is_refused(verdicts.get(n)) else settled.get(n))
            for n in range(len(entries))
        ]

    async def _drop(self, entries: Sequence[Entry]) -> dict[int, Settled]:
        """What became of the jobs.

        Where one is gone, its placeholder stands in the queue when this returns.
        """
        drops = {
            n: entry.settlement
            for n, entry in enumerate(entries)
            if isinstance(entry.settlement, Drop)
        }
        dropped: dict[int, Settled] = {}
        for _ in range(DROPS):
            if not drops:
                return dropped
            for n, settled in zip(drops, await self._queue.settle([*drops.values()]), strict=True):
                # Taken away once, it was there, whoever came between.
                dropped[n] = "done" if dropped.get(n) == "done" and settled == "absent" else settled
            gone = {
                n: job
                for n in drops
                if dropped[n] != "active" and (job := entries[n].dropped) is not None
            }
            due_ms = self._now_ms() + PLACE_HELD_MS
            held = (
                await self._queue.put(
                    [structs.replace(job, due_ms=due_ms) for job in gone.values()]
                )
                if gone
                else []
            )
            # The others were put again at this very moment, by a relay that had them in its hands,
            # and may be taken.
            drops = {n: drops[n] for n, is_held in zip(gone, held, strict=True) if not is_held}
        return dropped | dict.fromkeys(drops, "active")

    async def _append(
        self,
        entries: Sequence[Entry],
        appends: Mapping[int, Append],
        dropped: Mapping[int, Settled],
    ) -> dict[int, AppendVerdict]:
        held = {n: job for n in appends if n in dropped and (job := entries[n].dropped) is not None}
        taken_away = {n: job for n, job in held.items() if dropped[n] == "done"}
        try:
            verdicts = (
                dict(zip(appends, await self._events.append([*appends.values()]), strict=True))
                if appends
                else {}
            )
        except StoreError:
            # If it was only the answer that got lost, the job comes back to a request that no
            # longer wants it: harmless.
            await self._let_go(held, taken_away)
            raise
        await self._let_go(
            held, {n: job for n, job in taken_away.items() if _is_refused(verdicts[n])}
        )
        return verdicts

    async def _let_go(self, held: Mapping[int, Job], wanted: Mapping[int, Job]) -> None:
        """Remove the placeholders, and put back what is wanted as pending: nobody has held these
        jobs.
        """
        if held:
            await self._queue.drop([job.id for job in held.values()])
        if wanted:
            # After the placeholders: while one stands, the relay would put nothing in its place.
            await self._views.save_with_jobs([], [*wanted.values()], [], [])
            self._news.set()

    async def _settle(
        self, entries: Sequence[Entry], verdicts: Mapping[int, AppendVerdict]
    ) -> dict[int, Settled]:
        """Ack and release what was recorded.

        A crash before this leaves a job that its next taker finds done or not yet due.
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


class SeparateFences:
    """A fence around both databases.

    Implements gesta.ports.fences: what a crash leaves half done is done by repeating it.
    """

    def __init__(self, events: Fences, queue: Fences) -> None:
        self._events, self._queue = events, queue

    async def put_up(self, fence: Fence) -> None:
        # The queue's first: nothing more is taken whose end could not be recorded.
        if fence.tenant is None:
            await self._queue.put_up(fence)
        await self._events.put_up(fence)

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        # The events' last: it is the one that is asked whether a fence stands.
        await self._queue.take_down(fence, jobs)
        await self._events.take_down(fence)

    async def standing(self) -> list[Fence]:
        return await self._events.standing()


def _is_refused(verdict: AppendVerdict | None) -> bool:
    return verdict is not None and not isinstance(verdict, Appended)
