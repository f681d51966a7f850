"""Station 4 of 7, the fold itself: events and the views they meet become new views and jobs. The same for projector and rebuild."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gesta.addresses import request_stream
from gesta.current import Key, apply_event
from gesta.domain.codec import decode_meta
from gesta.domain.events import Meta
from gesta.errors import StoreError
from gesta.event_store import EventStore, Recorded
from gesta.job_queue import Job
from gesta.projector.dispatch import opened_job
from gesta.runtime import Runtime
from gesta.telemetry import Telemetry
from gesta.views import Parked, View

#: What the events of config streams name as their flow; no flow of one part can be declared.
CONFIG = "config"

#: Views by (flow, tenant, request id).
Known = Callable[[Sequence[Key]], Awaitable[dict[str, View]]]


class Folded(NamedTuple):
    views: list[View]
    jobs: list[Job]
    parked: list[Parked]


class Folding:
    def __init__(self, events: EventStore, known: Known, runtime: Runtime, telemetry: Telemetry) -> None:
        self._events, self._known = events, known
        self._runtime, self._telemetry = runtime, telemetry

    async def fold(self, batch: list[Recorded], quiet_until: int) -> Folded:
        """Up to `quiet_until` everything was done before: no job, and nothing is told or counted again."""
        metas: dict[int, Meta] = {}
        parked: list[Parked] = []
        for recorded in batch:
            try:
                told = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
            except ValueError as error:
                parked.append(self._park(recorded, "", error, quiet_until))
                continue
            if told.flow != CONFIG:
                metas[recorded.position] = told
        known = await self._met(batch, metas)
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
                parked.append(self._park(recorded, meta.tenant, error, quiet_until))
                continue
            known[meta.request_id] = changed[meta.request_id] = view
            job = opened_job(view.state) if recorded.position > quiet_until else None
            if job is not None:
                jobs[meta.request_id] = job
        # An operation opened and closed within one batch needs no job any more.
        wanted = [job for request_id, job in jobs.items() if changed[request_id].state.dispatch_version == job.dispatch_version]
        return Folded(list(changed.values()), [job for job in wanted if not changed[job.request_id].state.is_terminal], parked)

    async def _met(self, batch: list[Recorded], metas: dict[int, Meta]) -> dict[str, View]:
        keys = {
            meta.request_id: (meta.flow, meta.tenant, meta.request_id)
            for recorded in batch
            if recorded.version > 1 and (meta := metas.get(recorded.position)) is not None
        }
        return await self._known(list(keys.values())) if keys else {}

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

    def _park(self, recorded: Recorded, tenant: str, error: Exception, quiet_until: int) -> Parked:
        if recorded.position > quiet_until:
            self._telemetry.parked("event", recorded.stream, recorded.version, error)
        return Parked(
            "event", tenant, recorded.stream, recorded.version, type(error.__cause__ or error).__name__, self._runtime.now_ms()
        )
