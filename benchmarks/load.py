"""The load: many submitters at once for the rate, a few requests a second for the latency.

Public doors only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil

from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.errors import GestaError, OutcomeTimeout
from gesta.flows.flow import Payload
from gesta.intake.submit_options import Options
from gesta.ports.read_model import View
from gesta.runtime.clock import Runtime, Signal, SystemRuntime, sleep, spawn

#: Each waits for its commit before it submits the next one.
SUBMITTERS = 2_000
#: Requests in one `submit_many`; as many of these at a time as keep SUBMITTERS requests waiting.
BATCH = 1_000
LIGHT_PER_SECOND = 50
KEY_BYTES, KEYS = 16, 256


class Landing:
    """Counts the requests whose end is saved in a view, where everybody can see it."""

    def __init__(self, runtime: Runtime) -> None:
        self._count, self._changed_at = 0, 0.0
        self._news = Signal(runtime)

    def saved(self, views: Sequence[View]) -> None:
        self._count += sum(view.state.is_terminal for view in views)
        self._changed_at = time.perf_counter()
        self._news.set()

    async def wait(self, total: int, stall_seconds: float) -> None:
        """Return when all have ended, or when nothing has for `stall_seconds`: what is missing
        then, the check will tell.
        """
        self._changed_at = time.perf_counter()
        while self._count < total and time.perf_counter() - self._changed_at < stall_seconds:
            await self._news.wait(stall_seconds)


class Load:
    """One engine under load. `ids` are the requests it has accepted."""

    def __init__(
        self,
        engine: Engine,
        payload: Callable[[int], Payload],
        *,
        keyed: bool,
        stall_seconds: float,
    ) -> None:
        self._engine, self._payload, self._keyed, self._stall_seconds = (
            engine,
            payload,
            keyed,
            stall_seconds,
        )
        self._keys = random_keys()
        self._landing = Landing(engine.pipeline.runtime)
        engine.pipeline.projector.listen(self._landing.saved)
        self.ids: list[str] = []

    async def full(self, requests: int, *, batch: bool) -> float:
        """Seconds from the first submit until every outcome is recorded and visible."""
        numbers = iter(range(requests))
        start = time.perf_counter()
        if batch:
            tasks = [
                spawn(self._submit_batches(numbers), "bench-batches")
                for _ in range(SUBMITTERS // BATCH)
            ]
        else:
            tasks = [
                spawn(self._submit_each(numbers), "bench-submitter")
                for _ in range(min(SUBMITTERS, requests))
            ]
        for task in tasks:
            await task
        await self._landing.wait(requests, self._stall_seconds)
        return time.perf_counter() - start

    async def light(self, samples: int, progress: Callable[[int, int], None]) -> list[float]:
        """Milliseconds from submit to known outcome, sorted; the requests start on the beat however
        long the others take.
        """
        tasks, start = [], time.perf_counter()
        for number in range(samples):
            await sleep(
                self._engine.pipeline.runtime,
                max(0.0, start + number / LIGHT_PER_SECOND - time.perf_counter()),
            )
            tasks.append(spawn(self._time_one(number), "bench-light"))
            if number % LIGHT_PER_SECOND == 0:
                progress(number, samples)
        return sorted([await task for task in tasks])

    async def _submit_each(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            request = await self._engine.submit(self._payload(number), key=self._key())
            self.ids.append(request.id)

    async def _submit_batches(self, numbers: Iterator[int]) -> None:
        while chunk := [self._item(number) for number in islice(numbers, BATCH)]:
            for answer in await self._engine.submit_many(chunk):
                if not isinstance(answer, Request):
                    raise GestaError(f"a fresh key was refused: {answer}")
                self.ids.append(answer.id)

    def _item(self, number: int) -> Payload | tuple[Payload, Options]:
        payload = self._payload(number)
        return (payload, Options(key=self._key())) if self._keyed else payload

    async def _time_one(self, number: int) -> float:
        start = time.perf_counter()
        request = await self._engine.submit(self._payload(number), key=self._key())
        self.ids.append(request.id)
        with suppress(OutcomeTimeout):
            await request.outcome(timeout=self._stall_seconds)
        return (time.perf_counter() - start) * 1000

    def _key(self) -> str | None:
        return next(self._keys) if self._keyed else None


def random_keys() -> Iterator[str]:
    """Many from one call: the clock of the load is not for making keys."""
    while True:
        block = SystemRuntime().random_bytes(KEY_BYTES * KEYS).hex()
        yield from (
            block[start : start + 2 * KEY_BYTES] for start in range(0, len(block), 2 * KEY_BYTES)
        )


def percentile(sorted_values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all values do not exceed."""
    return sorted_values[ceil(len(sorted_values) * percent / 100) - 1]
