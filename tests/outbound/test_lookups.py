"""Looking up names: one at a time for each name, for all callers."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gesta.outbound.lookups import Lookups


class Slow(AbstractResolver):
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: asyncio.Future[list[ResolveResult]] = (
            asyncio.get_running_loop().create_future()
        )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        return await asyncio.shield(self.answer)

    async def close(self) -> None:
        """Nothing is held."""


FOUND: list[ResolveResult] = [
    {"hostname": "a", "host": "192.0.2.1", "port": 443, "family": 2, "proto": 6, "flags": 0}
]


async def test_a_hundred_requests_to_one_dead_name_keep_one_look_up_busy() -> None:
    slow = Slow()
    lookups = Lookups(slow)
    waiting = [asyncio.ensure_future(lookups.resolve("dead.example", 443)) for _ in range(100)]
    other = asyncio.ensure_future(lookups.resolve("alive.example", 443))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slow.asked == ["dead.example", "alive.example"]
    slow.answer.set_result(FOUND)
    assert await asyncio.gather(*waiting, other) == [FOUND] * 101


async def test_a_caller_that_gives_up_does_not_take_the_answer_from_the_others() -> None:
    slow = Slow()
    lookups = Lookups(slow)
    first, second = (asyncio.ensure_future(lookups.resolve("a.example")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    slow.answer.set_result(FOUND)
    assert await second == FOUND
    assert first.cancelled()


async def test_a_failure_reaches_every_caller_and_is_not_remembered() -> None:
    slow = Slow()
    lookups = Lookups(slow)
    waiting = [asyncio.ensure_future(lookups.resolve("a.example")) for _ in range(2)]
    await asyncio.sleep(0)
    slow.answer.set_exception(OSError("no such name"))
    for one in waiting:
        with pytest.raises(OSError, match="no such name"):
            await one
    slow.answer = asyncio.get_running_loop().create_future()
    slow.answer.set_result(FOUND)
    assert await lookups.resolve("a.example") == FOUND
