"""Tests that never end, for test_gate.py to run with a time limit."""

from __future__ import annotations

import asyncio
import time


def test_sleeps_for_ever():
    while True:
        time.sleep(0.01)


async def test_waits_for_ever():
    await asyncio.Event().wait()


async def test_a_task_runs_for_ever():
    async def run() -> None:
        while True:
            await asyncio.sleep(0)

    await asyncio.create_task(run())
