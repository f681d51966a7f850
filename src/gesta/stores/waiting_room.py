"""What makes up for a queue without UniqueJobs: it may deliver a job twice, cannot be asked for one
and cannot hold one.

- **Two copies.** Every attempt is journalled before its call, at the version that was read. One of
  two workers wins; the other finds that an attempt has begun and deletes its copy
  (worker/preflight.py).
- **Drop.** Nothing is removed from the queue. The request's events decide, and a worker that takes
  an outdated job deletes it. A request whose attempt has begun counts as active
  (AtLeastOnceTransactions in separate_queue.py).
- **Holds.** A held job moves to the queue of the store, the waiting room, and is executed from
  there once its pause has ended.
- **Lost jobs.** The sweeper puts another copy after a time (maintenance/sweeper.py).
"""

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import cast

from msgspec.structs import replace

from gesta.ports.job_queue import (
    Ack,
    Backlog,
    Drop,
    Hold,
    Job,
    JobCounts,
    JobInspection,
    JobQueue,
    LeasedJob,
    Settled,
    Settlement,
)
from gesta.ports.stores import Missing, QueuePorts, Stores
from gesta.runtime.clock import Runtime, Signal, spawn

#: The waiting room is asked for jobs no more often than this: it is mostly empty.
LOOK_SECONDS = 1.0


def with_waiting_room(queue: QueuePorts, stores: Stores, runtime: Runtime) -> QueuePorts:
    """The queue, with the queue of the store for the jobs that it cannot hold."""
    both = QueueWithWaitingRoom(queue.queue, stores.queue, runtime)
    counts = BothCounts(JobInspection, queue.name, "listing jobs needs it")
    counts.of = queue.job_counts, stores.job_inspection
    return with_fields(
        queue,
        queue=both,
        job_holds=stores.job_holds,
        job_inspection=cast(JobInspection, counts),
    )


class QueueWithWaitingRoom:
    """Implements JobQueue over a queue that delivers at least once and the queue of the store."""

    def __init__(self, queue: JobQueue, room: JobQueue, runtime: Runtime) -> None:
        self._queue, self._room, self._runtime = queue, room, runtime
        self._looked_at = float("-inf")
        #: Jobs leased from the waiting room, each with its token.
        self._from_room: dict[str, str] = {}

    async def put(self, jobs: Sequence[Job]) -> list[bool]:
        return await self._queue.put(jobs)

    async def take(
        self, token: str, flows: dict[str, int], lease_seconds: float, *, durable: bool
    ) -> tuple[list[LeasedJob], int | None]:
        leased: list[LeasedJob] = []
        moments: list[int | None] = []
        now = self._runtime.monotonic()
        if self._from_room or now - self._looked_at >= LOOK_SECONDS:
            found, due_ms = await self._room.take(token, flows, lease_seconds, durable=durable)
            leased += self._noted(found)
            moments.append(due_ms)
            # As long as there are some, it is asked with every take.
            self._looked_at = now if not found else float("-inf")
        free = dict(flows)
        for one in leased:
            free[one.job.flow] -= 1
        more, due_ms = await self._queue.take(
            token,
            {flow: slots for flow, slots in free.items() if slots > 0},
            lease_seconds,
            durable=durable,
        )
        moments.append(due_ms)
        return leased + more, min((one for one in moments if one is not None), default=None)

    async def leased_by(self, token: str) -> list[LeasedJob]:
        return self._noted(await self._room.leased_by(token)) + await self._queue.leased_by(token)

    async def extend(self, token: str, lease_seconds: float) -> bool:
        of_room = await self._room.leased_by(token) if token in self._from_room.values() else []
        of_queue = await self._queue.leased_by(token)
        return (
            bool(of_room or of_queue)
            and (not of_room or await self._room.extend(token, lease_seconds))
            and (not of_queue or await self._queue.extend(token, lease_seconds))
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """A hold of a job that the queue delivered moves it to the waiting room. There the next
        worker holds it: a job that is put is ready.
        """
        tokens = {one.token for one in settlements if not isinstance(one, Drop)}
        delivered = {
            (one.job.id, token): one
            for token in tokens
            for one in await self._queue.leased_by(token)
        }
        ours: dict[int, Settlement] = {}
        rooms: dict[int, Settlement] = {}
        moved: list[Job] = []
        for n, one in enumerate(settlements):
            if isinstance(one, Drop):
                rooms[n] = one
                continue
            leased = delivered.get((one.job_id, one.token))
            if leased is None:
                rooms[n] = one
            elif isinstance(one, Hold):
                moved.append(replace(leased.job, possibly_executed=leased.is_possibly_executed))
                ours[n] = Ack(one.job_id, one.token)
            else:
                ours[n] = one
        if moved:
            await self._room.put(moved)
        settled = await _settle(self._queue, ours) | await _settle(self._room, rooms)
        for settlement in rooms.values():
            self._from_room.pop(settlement.job_id, None)
        return [settled[n] for n in range(len(settlements))]

    async def ready(self, timeout_seconds: float) -> None:
        """Both signal: an unheld job is ready in the waiting room."""
        ready = Signal(self._runtime)

        async def hear(queue: JobQueue) -> None:
            await queue.ready(timeout_seconds)
            if queue is self._room:
                self._looked_at = float("-inf")
            ready.set()

        hearing = [spawn(hear(one), "gesta-queue") for one in (self._queue, self._room)]
        try:
            await ready.wait(timeout_seconds)
        finally:
            for task in hearing:
                task.cancel()

    def _noted(self, leased: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Jobs of the waiting room. The queue may have copies of them."""
        self._from_room |= {one.job.id: one.token for one in leased}
        return [replace(one, may_be_copy=True) for one in leased]


class BothCounts(Missing):
    """Counts of the queue and the waiting room together. The jobs themselves cannot be listed."""

    of: tuple[JobCounts | None, JobInspection]

    async def count(self, limit: int) -> int:
        queue, room = self.of
        count = await room.count(limit)
        if queue is not None and count < limit:
            count += await queue.count(limit - count)
        return count

    async def backlog(self) -> dict[str, Backlog]:
        queue, room = self.of
        found = {} if queue is None else await queue.backlog()
        for flow, waiting in (await room.backlog()).items():
            one = found.get(flow, Backlog())
            found[flow] = replace(
                waiting,
                waiting=waiting.waiting + one.waiting,
                ready=waiting.ready + one.ready,
                leased=waiting.leased + one.leased,
            )
        return found


async def _settle(queue: JobQueue, chosen: dict[int, Settlement]) -> dict[int, Settled]:
    if not chosen:
        return {}
    return dict(zip(chosen, await queue.settle(list(chosen.values())), strict=True))
