"""Concurrent callers, and waiters on a clock that the test moves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gesta.runtime.clock import ManualRuntime, spawn

T = TypeVar("T")


async def race(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Start all before the first one is awaited; their answers in order."""
    tasks = [spawn(call, "race") for call in calls]
    return [await task for task in tasks]


async def wait_for_all(*waits: Coroutine[Any, Any, None]) -> list[asyncio.Task[None]]:
    """Let every wait begin."""
    tasks = [spawn(wait, "wait") for wait in waits]
    await let_others_run()
    return tasks


async def end_within(runtime: ManualRuntime, seconds: int, tasks: list[asyncio.Task[None]]) -> bool:
    """Whether the tasks end while the clock moves by so many seconds."""
    for _ in range(seconds):
        await let_others_run()
        if all(task.done() for task in tasks):
            return True
        runtime.advance(1)
    for task in tasks:
        task.cancel()
    return False


async def let_others_run(turns: int = 10) -> None:
    for _ in range(turns):
        await spawn(_nothing(), "turn")


async def _nothing() -> None: ...
