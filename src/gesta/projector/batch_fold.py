"""Folds a batch of events into views and jobs, for projector and rebuild."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from gesta.domain.codec import decode_meta
from gesta.domain.events import Meta
from gesta.domain.stream_names import request_stream
from gesta.errors import StoreError
from gesta.ports.event_store import EventStore, Recorded
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Key, Quarantined, View
from gesta.requests.dispatch import is_wanted, opened_job
from gesta.requests.loader import apply_event
from gesta.runtime.component import Process

#: The flow that events of config streams name. No declared flow has this name.
CONFIG = "config"

Known = Callable[[Sequence[Key]], Awaitable[dict[Key, View]]]


class Folded(NamedTuple):
    views: list[View]
    jobs: list[Job]
    quarantined: list[Quarantined]
    #: Of each view the position of its first event in the batch.
    firsts: list[int]


class Folding:
    def __init__(self, events: EventStore, known: Known, process: Process) -> None:
        self._events, self._known = events, known
        self._runtime, self._telemetry = process.runtime, process.telemetry
        #: What the last fold quarantined for the first time.
        self._unlogged: list[tuple[Recorded, Exception]] = []

    async def fold(self, batch: list[Recorded], quiet_until: int) -> Folded:
        """Fold a batch. Events up to `quiet_until` were folded before: they open no job and are not
        logged or counted again.
        """
        self._unlogged.clear()
        requests: list[tuple[Recorded, Meta]] = []
        quarantined: list[Quarantined] = []
        for recorded in batch:
            try:
                meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
            except ValueError as error:
                quarantined.append(self._quarantine(recorded, "", error, quiet_until))
                continue
            if meta.flow != CONFIG:
                requests.append((recorded, meta))
        known = await self._met(requests)
        changed: dict[Key, View] = {}
        firsts: dict[Key, int] = {}
        jobs: dict[Key, Job] = {}
        for recorded, meta in requests:
            key = meta.flow, meta.tenant, meta.request_id
            before = known.get(key)
            try:
                if recorded.version == (1 if before is None else before.state.version + 1):
                    view = apply_event(before, recorded, meta.flow)
                elif (past_gap := await self._past_gap(before, recorded, meta)) is not None:
                    view = past_gap
                else:
                    continue
            except StoreError:
                # The event is not the cause: the batch is read again.
                raise
            except Exception as error:  # noqa: BLE001 -- one event; the rest must go on
                quarantined.append(self._quarantine(recorded, meta.tenant, error, quiet_until))
                continue
            known[key] = changed[key] = view
            firsts.setdefault(key, recorded.position)
            job = opened_job(view.state) if recorded.position > quiet_until else None
            if job is not None:
                jobs[key] = job
        wanted = _still_wanted(jobs, changed)
        return Folded(list(changed.values()), wanted, quarantined, list(firsts.values()))

    def log_quarantined(self) -> None:
        """Log what was quarantined, once it is stored: during an outage the same event is read
        repeatedly.
        """
        for recorded, error in self._unlogged:
            self._telemetry.quarantined("event", recorded.stream, recorded.version, error)
        self._unlogged.clear()

    async def _met(self, requests: list[tuple[Recorded, Meta]]) -> dict[Key, View]:
        keys = dict.fromkeys(
            (meta.flow, meta.tenant, meta.request_id)
            for recorded, meta in requests
            if recorded.version > 1
        )
        return await self._known(list(keys)) if keys else {}

    async def _past_gap(self, view: View | None, recorded: Recorded, meta: Meta) -> View | None:
        """The view after an event that is not the next one; None if it was folded before."""
        version = 0 if view is None else view.state.version
        if recorded.version <= version:
            return None
        # An earlier event was quarantined, or the view lags. The stream has all events.
        stream = request_stream(meta.flow, meta.tenant, meta.request_id)
        for missed in await self._events.read([(stream, version)]):
            if missed.version <= recorded.version:
                view = apply_event(view, missed, meta.flow)
        return view

    def _quarantine(
        self, recorded: Recorded, tenant: str, error: Exception, quiet_until: int
    ) -> Quarantined:
        if recorded.position > quiet_until:
            self._unlogged.append((recorded, error))
        return Quarantined(
            "event",
            tenant,
            recorded.stream,
            recorded.version,
            type(error.__cause__ or error).__name__,
            self._runtime.now_ms(),
        )


def _still_wanted(jobs: dict[Key, Job], changed: dict[Key, View]) -> list[Job]:
    """The jobs of operations that are still open at the end of the batch."""
    return [job for key, job in jobs.items() if is_wanted(job, changed[key].state)]
