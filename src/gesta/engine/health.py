"""The health of a process: live and ready. Answers name the kind of an error, never its text.

Live: the event loop runs, which the answer itself shows, and every component runs. A restart helps
a process that is not live.

Ready: in addition the store accepts writes, every component has begun, and the process is not
stopping. A restart would not help: the process retries until the store is back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from gesta.errors import StoreError
from gesta.runtime.clock import Signal, spawn

if TYPE_CHECKING:
    from gesta.engine.pipeline import Pipeline

#: A lease that is claimed for no time, to see whether the store accepts writes.
ROLE = "health"
#: Without an answer for this long, a store counts as silent.
SILENT_SECONDS = 2.0
#: How long an answer is reused.
FRESH_SECONDS = 1.0


class ProcessHealth:
    """Knows its pipeline once the engine has started."""

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = self._answered_at = float("-inf")
        self._error: str | None = None
        self._answered: Signal | None = None

    def watch(self, pipeline: Pipeline) -> None:
        if pipeline is not self._pipeline:
            self._pipeline, self._answered = pipeline, Signal(pipeline.runtime)

    def metrics(self) -> bytes:
        """In Prometheus' text format; nothing before the engine has started."""
        return b"" if self._pipeline is None else generate_latest(self._pipeline.telemetry.registry)

    def not_live(self) -> dict[str, str]:
        """Component → error."""
        pipeline = self._pipeline
        return {} if pipeline is None or pipeline.is_stopping else pipeline.components.broken()

    async def not_ready(self) -> dict[str, str]:
        """Why this process is not working at the moment."""
        pipeline = self._pipeline
        if pipeline is None:
            return {"process": "is starting"}
        if pipeline.is_stopping:
            return {"process": "is stopping"}
        errors = dict.fromkeys(pipeline.not_begun(), "has not begun") | pipeline.components.broken()
        store = await self._store(pipeline)
        return errors if store is None else {"store": store, **errors}

    async def _store(self, pipeline: Pipeline) -> str | None:
        """The error of the store.

        Callers share one check, so that they do not accumulate while a store does not answer.
        """
        clock, answered = pipeline.runtime.monotonic, self._answered
        assert answered is not None
        if self._asking is None and clock() - self._answered_at >= FRESH_SECONDS:
            self._asked_at = clock()
            self._asking = spawn(self._ask(pipeline), "gesta-health")
        while self._asking is not None and (left := self._asked_at + SILENT_SECONDS - clock()) > 0:
            await answered.wait(left)
        return self._error if self._asking is None else f"has not answered for {SILENT_SECONDS:g} s"

    async def _ask(self, pipeline: Pipeline) -> None:
        stores = pipeline.environment.stores
        try:
            await stores.leases.claim(ROLE, pipeline.owner, 0.0)
            await stores.job_inspection.count(1)
            self._error = None
        except StoreError as error:
            self._error = f"cannot be used ({type(error).__name__})"
        finally:
            self._asking, self._answered_at = None, pipeline.runtime.monotonic()
            if self._answered is not None:
                self._answered.set()
