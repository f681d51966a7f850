"""The loop around a component's steps, and the supervision of components."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from gesta.errors import StoreError
from gesta.runtime.clock import Ids, ManualRuntime, spawn, turn
from gesta.runtime.component import (
    RESTART_SECONDS,
    STORE_PAUSE_SECONDS,
    Components,
    Process,
    repeat,
)
from gesta.runtime.telemetry import Telemetry


class Failing:
    """A step that fails as long as the store does, and counts its calls."""

    def __init__(self) -> None:
        self.calls = self.outages = 0
        self.is_down = True

    async def step(self) -> None:
        self.calls += 1
        await turn()
        if self.is_down:
            raise StoreError("out of reach")

    def outage(self) -> None:
        self.outages += 1


@pytest.fixture
def runtime() -> ManualRuntime:
    return ManualRuntime()


@pytest.fixture
def process(runtime: ManualRuntime) -> Process:
    return Process(runtime, Ids(runtime), Telemetry(), "test")


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await turn()


async def test_a_component_pauses_after_an_outage_and_goes_on(runtime, process, monkeypatch):
    logged: list[str] = []
    monkeypatch.setattr(Telemetry, "store_failed", lambda _, name, __: logged.append(name))
    failing = Failing()
    running = spawn(
        repeat(
            failing.step,
            "worker",
            process,
            outage=failing.outage,
            is_over=lambda: failing.calls >= 5,
        ),
        "test",
    )
    await turns()
    assert (failing.calls, failing.outages, logged) == (1, 1, ["worker"])
    runtime.advance(STORE_PAUSE_SECONDS - 0.001)
    await turns()
    assert failing.calls == 1
    runtime.advance(0.001)
    await turns()
    assert (failing.calls, failing.outages, logged) == (2, 2, ["worker", "worker"])
    failing.is_down = False
    runtime.advance(STORE_PAUSE_SECONDS)
    await running
    assert (failing.calls, failing.outages) == (5, 2)


async def test_a_step_that_swallows_its_cancellation_is_the_last_one(process):
    steps = []

    async def step():
        steps.append(1)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    task = asyncio.create_task(repeat(step, "deaf", process))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(steps) == 1


async def test_an_error_other_than_an_outage_ends_the_loop(process):
    async def step() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await repeat(step, "worker", process)


async def test_a_component_that_crashes_is_reported_and_started_again(runtime, process):
    begun: list[int] = []

    async def run() -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            raise ValueError("a bug")
        await asyncio.Event().wait()

    components = Components(process)
    components.runs["worker"] = run
    assert components.broken() == {"worker": "does not run"}
    components.start()
    await turns()
    assert components.broken() == {"worker": "crashed (ValueError) and is being started again"}
    runtime.advance(RESTART_SECONDS)
    await turns()
    assert (begun, components.broken()) == ([0, 1], {})
    await components.end(["worker"], runtime.monotonic())
    assert components.broken() == {"worker": "does not run"}


async def test_a_cancellation_from_elsewhere_is_a_crash_and_not_the_end(runtime, process):
    begun: list[int] = []

    async def run() -> None:
        begun.append(1)
        raise asyncio.CancelledError

    components = Components(process)
    components.runs["worker"] = run
    components.start()
    await turns()
    runtime.advance(RESTART_SECONDS)
    await turns()
    assert len(begun) == 2
    await components.end(["worker"], runtime.monotonic())


async def test_components_that_swallow_their_end_are_waited_for_until_then(runtime, process):
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if is_over:
                    raise

    async def clean() -> None:
        await asyncio.Event().wait()

    is_over = False
    components = Components(process)
    runs: dict[str, Callable[[], Awaitable[None]]] = {"stubborn": stubborn, "clean": clean}
    components.runs.update(runs)
    components.start()
    await turns()
    tasks: dict[str, asyncio.Task[Any]] = dict(components.tasks)
    ending = spawn(components.end(["stubborn", "clean"], runtime.monotonic() + 5), "test")
    await turns()
    assert (ending.done(), tasks["clean"].done(), components.tasks) == (False, True, {})
    runtime.advance(5)
    await ending
    assert not tasks["stubborn"].done()
    is_over = True
    tasks["stubborn"].cancel()
    await asyncio.wait([tasks["stubborn"]])
