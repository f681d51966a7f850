"""Inline projection: events that this process appends are projected in the appending commit.

View, job and checkpoint are in the same commit as the events, or the projector writes them later.
Inline projection is used only while this process projects all of the log and has reached its end,
and only if the store supports it. The store moves the checkpoint by compare-and-set, so an event of
another process in between is never skipped.

Intake and the recorder append through this class instead of the store.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gesta.domain.events import Created
from gesta.domain.lifecycles import lifecycle_of
from gesta.ports.event_store import Append, Appended, AppendVerdict
from gesta.ports.job_queue import Job
from gesta.ports.read_model import View
from gesta.ports.stores import Stores
from gesta.ports.transactions import Entry, Projection, Recording
from gesta.projector.projector import Projector
from gesta.requests.dispatch import is_wanted, opened_job

T = TypeVar("T")


class InlineProjection:
    def __init__(self, stores: Stores, projector: Projector) -> None:
        self._events, self._commits, self._projector = stores.events, stores.transactions, projector
        self._is_possible, self.commit_size = stores.projects_inline, stores.commit_size
        self.recordings_at_once = stores.recordings_at_once
        self._is_counted = stores.has_separate_views

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """As EventStore.append, of new requests."""
        if not self._is_possible:
            await self._projector.room()
            return await self._counted(appends, self._events.append(appends), lambda one: one)
        await self._projector.before_append()
        projection = self._projection((append, None) for append in appends)
        if projection is None:
            return await self._write(self._events.append(appends), None)
        with self._projector.eager(projection.jobs) as free_slots:
            if free_slots is not None:
                projection.free_slots, free_slots.made = free_slots, _made(projection)
            return await self._write(self._commits.append(appends, projection), projection)

    async def record(self, entries: Sequence[Entry]) -> list[Recording]:
        """As Transactions.record."""
        appends = [(entry.append, entry.view) for entry in entries if entry.append is not None]
        if not appends:
            return await self._commits.record(entries)
        if not self._is_possible:
            return await self._counted(
                [one.append for one in entries],
                self._commits.record(entries),
                lambda one: one.verdict,
            )
        await self._projector.before_append()
        projection = self._projection(appends)
        if projection is None:
            return await self._write(self._commits.record(entries), None)
        return await self._write(self._commits.record(entries, projection), projection)

    async def _counted(
        self,
        appends: Sequence[Append | None],
        writing: Awaitable[list[T]],
        verdict_of: Callable[[T], AppendVerdict | None],
    ) -> list[T]:
        """Count the events that the projector is to read from the log."""
        if not self._is_counted:
            return await writing
        sizes = [0 if one is None else len(one.events) for one in appends]
        count, written = sum(sizes), 0
        self._projector.appended(count)
        try:
            answers = await writing
            written = sum(
                [
                    size
                    for size, answer in zip(sizes, answers, strict=True)
                    if isinstance(verdict_of(answer), Appended)
                ]
            )
            return answers
        finally:
            # Without those that were refused: new requests would wait for them.
            self._projector.appended(written - count)

    async def _write(self, writing: Awaitable[T], projection: Projection | None) -> T:
        self._projector.sent()
        try:
            return await writing
        finally:
            # Also if the answer is lost: then the end of the log is unknown.
            self._projector.landed(projection)

    def _projection(self, appends: Iterable[tuple[Append, View | None]]) -> Projection | None:
        checkpoints = self._projector.checkpoints_at_end()
        if checkpoints is None:
            return None
        views: list[View] = []
        jobs: list[Job] = []
        for append, after in appends:
            view, job = _folded(append, after)
            if view is None:
                return None
            views.append(view)
            if job is not None:
                jobs.append(job)
        return Projection(views, jobs, checkpoints)


def _made(projection: Projection) -> Mapping[str, View]:
    """The requests by the ids of their jobs; empty unless each has one."""
    views, jobs = projection.views, projection.jobs
    return (
        dict(zip([job.id for job in jobs], views, strict=True)) if len(views) == len(jobs) else {}
    )


def _folded(append: Append, after: View | None) -> tuple[View | None, Job | None]:
    """The request after these events, and the job that they open; no view if this process cannot
    decode the events.
    """
    if after is None:
        known = append.events[0].known
        if known is None or not isinstance(known.event, Created):
            return None, None
        payload = bytes(known.event.payload)
        if len(append.events) == 1:
            state = lifecycle_of(known.meta.flow).evolve(None, known.event, known.meta)
            return View(state, payload), opened_job(state)
        # A request that ends in its first append opens no job.
        last = append.events[-1].known
        if last is None or last.after is None or not last.after.is_terminal:
            return None, None
        return View(last.after, payload), None
    job = None
    for event in append.events:
        if event.known is None or event.known.after is None:
            return None, None
        job = opened_job(event.known.after) or job
    return after, job if job is not None and is_wanted(job, after.state) else None
