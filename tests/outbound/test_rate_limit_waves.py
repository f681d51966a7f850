"""Attempts come in waves: what those who take tokens together find, and what they leave to those
right behind them.
"""

from __future__ import annotations

import asyncio

import pytest

from gesta.outbound.rate_limits import ADVANCE_MS, Limit
from gesta.runtime.clock import spawn, turn
from tests.outbound.test_rate_limits import World, postponement


@pytest.fixture
def world() -> World:
    return World()


async def test_callers_that_ask_together_start_a_wave_and_the_rest_of_it_does_not_wait(
    world,
):
    limit = Limit("room", 1_000.0, burst=200)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(20)))
    rest = [spawn(world.limits.take(limit), "take") for _ in range(35)]
    await turn()
    assert all(task.done() for task in rest)
    reserved = [one.tokens for asked in world.token_buckets.asked for one in asked]
    assert reserved[0] == 20 + 4 * 19
    assert max(reserved) <= 20 + ADVANCE_MS / limit.gap_ms


async def test_after_a_wave_no_caller_gets_a_token_of_a_bucket_the_provider_closed(world):
    limit = Limit("room", 1_000.0, burst=200)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(20)))
    await world.limits.close("room", 5)
    assert await postponement(world.limits, limit) >= 5


async def test_a_limit_that_is_named_twice_costs_two_tokens_each_time(world):
    limit = Limit("room", 1.0, burst=100)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(20)))
    leased = 20
    while await world.leased(limit, limit) is not None:
        leased += 2
    assert leased == 100


async def test_tokens_of_a_time_that_a_clock_set_back_has_left_are_not_waited_for(world):
    limit = Limit("room", 200.0, burst=20)
    await asyncio.gather(*(world.limits.take(limit) for _ in range(20)))
    world.runtime._now_ms -= 60_000
    taking = spawn(world.limits.take(limit), "take")
    world.runtime.advance(0.3)
    for _ in range(5):
        await turn()
    assert taking.done()
