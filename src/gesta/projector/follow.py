"""Station 4 of 7: follow the log from the checkpoint, fold, write views, jobs and checkpoint in one commit.

Receives events from the event store; hands jobs to the queue (dispatch.py) and views to everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gesta.addresses import request_stream
from gesta.commits import Commits
from gesta.current import apply_event
from gesta.domain.codec import decode_meta
from gesta.domain.events import Meta
from gesta.errors import StoreError
from gesta.event_store import EventStore, Recorded
from gesta.job_queue import Job
from gesta.pace import Company
from gesta.projector.dispatch import opened_job
from gesta.role import RENEWAL_SECONDS, Role
from gesta.runtime import Runtime, Signal, sleep
from gesta.telemetry import Telemetry
from gesta.views import Move, Parked, View, Views

CHECKPOINT = "projector"
#: Larger batches cost less per event: each commit writes the edges of the same trees anew.
BATCH = 2_000
#: While several tenants are at work: whoever comes waits for the end of the batch before.
MIXED_BATCH = 250
#: A store tells when something was appended; should it ever not, this is how long an event lies unnoticed.
POLL_SECONDS = 1.0
STORE_PAUSE_SECONDS = 1.0
#: What the events of config streams name as their flow; no flow of one part can be declared.
CONFIG = "config"


class Projector:
    def __init__(
        self,
        events: EventStore,
        views: Views,
        commits: Commits,
        company: Company,
        runtime: Runtime,
        telemetry: Telemetry,
        owner: str,
    ) -> None:
        self._events, self._views, self._commits = events, views, commits
        self._company, self._runtime, self._telemetry = company, runtime, telemetry
        self._role = Role(CHECKPOINT, owner, views, runtime)
        self._listeners: list[Callable[[Sequence[View]], None]] = []
        self._position: int | None = None
        self._quiet_until = 0
        self._is_behind = False
        self._caught_up = Signal(runtime)

    async def place(self) -> int:
        """The position up to which the views show the log: our own where we project, else what the store says."""
        if self._role.was_ours and self._position is not None:
            return self._position
        return await self._views.checkpoint(CHECKPOINT)

    async def catch_up(self, seconds: float) -> None:
        """Wait while much is to be projected, for so long at most; not at all where another process projects."""
        end = self._runtime.monotonic() + seconds
        while self._is_behind and self._role.was_ours and (left := end - self._runtime.monotonic()) > 0:
            await self._caught_up.wait(left)

    @property
    def is_here(self) -> bool:
        """Whether this process is the one that projects: then whoever listens hears of every outcome."""
        return self._role.was_ours

    def listen(self, listener: Callable[[Sequence[View]], None]) -> None:
        """Call with every batch of views once it is saved."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Project for ever, while the role is ours."""
        while True:
            try:
                if not await self._role.is_ours():
                    self._position = None
                    await sleep(self._runtime, RENEWAL_SECONDS)
                elif await self.step() == 0:
                    await self._events.changed(POLL_SECONDS)
            except StoreError as error:
                self._telemetry.store_failed("projector", error)
                self._position = None
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def finish(self) -> None:
        """After `run` was cancelled: project what is left, so that whoever looks at the store meanwhile sees how it ended."""
        with suppress(StoreError):
            if await self._role.is_ours():
                # A step that was cut off may have been committed, or may be about to be: then the checkpoint moves under us.
                self._position = None
                while await self.step() or self._position is None:
                    pass

    async def step(self) -> int:
        """Project one batch; how many events it had."""
        if self._position is None:
            self._position = await self._views.checkpoint(CHECKPOINT)
            self._quiet_until = await self._views.checkpoint("dispatched")
        batch = await self._events.follow(self._position, MIXED_BATCH if self._company.is_mixed else BATCH)
        self._is_behind = len(batch) >= MIXED_BATCH
        if not self._is_behind:
            self._caught_up.set()
        if not batch:
            return 0
        views, jobs, parked = await self._fold(batch)
        move = Move(CHECKPOINT, self._position, batch[-1].position)
        if not await self._commits.project(views, jobs, parked, move):
            # Another projector moved the checkpoint: start again from where it stands now.
            self._position = None
            return 0
        self._position = move.after
        for listener in self._listeners:
            listener(views)
        return len(batch)

    async def rebuild(self, progress: Callable[[int, int], None]) -> int:
        """Forget all views and fold them anew; what was dispatched before is not dispatched again. How many events were folded."""
        target = await self._views.checkpoint(CHECKPOINT)
        await self._views.clear()
        self._position, folded = None, 0
        while (self._position or 0) < target and (count := await self.step()):
            folded += count
            progress(min(self._position or 0, target), target)
        return folded

    async def _fold(self, batch: list[Recorded]) -> tuple[list[View], list[Job], list[Parked]]:
        metas = {}
        parked: list[Parked] = []
        for recorded in batch:
            try:
                told = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
            except ValueError as error:
                parked.append(self._park(recorded, "", error))
                continue
            if told.flow != CONFIG:
                metas[recorded.position] = told
        for tenant in {meta.tenant for meta in metas.values()}:
            self._company.saw(tenant)
        known = await self._known(batch, metas)
        changed: dict[str, View] = {}
        jobs: dict[str, Job] = {}
        for recorded in batch:
            meta = metas.get(recorded.position)
            if meta is None:
                continue
            try:
                view = await self._next_view(known.get(meta.request_id), recorded, meta)
                if view is None:
                    continue
            except StoreError:
                # Not the event's fault: the batch is read again.
                raise
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with one event, the rest must go on
                parked.append(self._park(recorded, meta.tenant, error))
                continue
            known[meta.request_id] = changed[meta.request_id] = view
            job = opened_job(view.state) if recorded.position > self._quiet_until else None
            if job is not None:
                jobs[meta.request_id] = job
        # An operation opened and closed within one batch needs no job any more.
        wanted = [job for request_id, job in jobs.items() if changed[request_id].state.dispatch_version == job.dispatch_version]
        return list(changed.values()), [job for job in wanted if not changed[job.request_id].state.is_terminal], parked

    async def _known(self, batch: list[Recorded], metas: dict[int, Meta]) -> dict[str, View]:
        keys = {
            meta.request_id: (meta.flow, meta.tenant, meta.request_id)
            for recorded in batch
            if recorded.version > 1 and (meta := metas.get(recorded.position)) is not None
        }
        return await self._views.get(list(keys.values())) if keys else {}

    async def _next_view(self, view: View | None, recorded: Recorded, meta: Meta) -> View | None:
        """The view with this event folded in; None when it was folded in before."""
        version = 0 if view is None else view.state.version
        if recorded.version <= version:
            return None
        if recorded.version == version + 1:
            return apply_event(view, recorded, meta.flow)
        # A gap: an earlier event was parked or the view is older than it should be. The stream has them all.
        stream = request_stream(meta.flow, meta.tenant, meta.request_id)
        for missed in await self._events.read([(stream, version)]):
            if missed.version <= recorded.version:
                view = apply_event(view, missed, meta.flow)
        return view

    def _park(self, recorded: Recorded, tenant: str, error: Exception) -> Parked:
        self._telemetry.parked("event", recorded.stream, recorded.version, error)
        return Parked(
            "event", tenant, recorded.stream, recorded.version, type(error.__cause__ or error).__name__, self._runtime.now_ms()
        )
