"""Waiting for what a server or another process does in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 30.0


async def until(holds: Callable[[], Awaitable[T]]) -> T:
    """The first answer that is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await holds()):
            await asyncio.sleep(0.05)
    return found
