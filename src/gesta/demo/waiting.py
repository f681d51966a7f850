"""Waiting for something to become true, with an end to the patience."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gesta.errors import GestaError
from gesta.runtime.clock import Runtime, sleep

LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 30.0


class Stuck(GestaError):
    """The demo waited for something that did not come."""

    def __init__(self, awaited: str) -> None:
        super().__init__(f"waited in vain for {awaited}")


async def until(
    runtime: Runtime,
    holds: Callable[[], bool | Awaitable[bool]],
    awaited: str,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Look again and again until it holds. Raises Stuck when it does not in time."""
    patient_until = runtime.monotonic() + patience_seconds
    while True:
        answer = holds()
        if answer if isinstance(answer, bool) else await answer:
            return
        if runtime.monotonic() > patient_until:
            raise Stuck(awaited)
        await sleep(runtime, LOOK_SECONDS)
