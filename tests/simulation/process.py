"""One simulated process: an Engine with a clock of its own, behind a network that may fail.

All of them share the same memory databases.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from gesta import Engine
from gesta.engine.environment import Environment
from gesta.errors import StoreError
from gesta.ports.stores import Stores
from gesta.runtime.clock import Timer
from gesta.runtime.settings import Settings
from gesta.security.envelope_encryption import MasterKey
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.separate_queue import with_separate_queue
from tests.simulation.loop import OWNER, Owner, SimulatedLoop

if TYPE_CHECKING:
    from gesta.engine.pipeline import Pipeline
    from tests.simulation.world import World

MASTER = MasterKey(base64.b64encode(bytes(32)).decode(), "the simulation")
#: Hints, never promises: they wait, and have no effect that could be lost.
HINTS = frozenset({"changed", "ready"})
STORE_MS_MAX = 8


class SimulatedRuntime:
    """The loop's clock, off by the process's skew, and the seed's dice."""

    def __init__(self, loop: SimulatedLoop, random: Random, skew_ms: int = 0) -> None:
        self._loop, self._random, self._skew_ms = loop, random, skew_ms

    def now_ms(self) -> int:
        return int(self._loop.now * 1000) + self._skew_ms

    def monotonic(self) -> float:
        return self._loop.now

    def chance(self) -> float:
        return self._random.random()

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> Timer:
        return self._loop.call_later(seconds, callback, *args)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        raise AssertionError(f"a thread in a simulation: {name}")


class Process(Owner):
    """From its start to its death or clean end; a restart is another one."""

    def __init__(self, world: World, name: str, skew_ms: int, *, work: bool = True) -> None:
        super().__init__()
        self.world, self.name, self.skew_ms = world, name, skew_ms
        self.runtime = SimulatedRuntime(world.loop, world.random, skew_ms)
        self.context = copy_context()
        self.context.run(OWNER.set, self)
        self.engine = Engine(
            flows=world.provider.flows, settings=Settings(url="memory:simulation"), work=work
        )
        world.ears.listen(self.engine)
        self.is_ready = self.is_stopped = False
        #: Where its store calls are: the number under way before and after their effect.
        self.before = self.after = 0

    @property
    def is_up(self) -> bool:
        return self.is_ready and not self.is_dead and not self.is_stopped

    @property
    def pipeline(self) -> Pipeline:
        return self.engine.pipeline

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that lives and dies with this process."""
        task: asyncio.Task[Any] = self.world.loop.create_task(coroutine, context=self.context)
        return task

    def environment(self) -> Environment:
        stores = self._over_the_network(self.world.database)
        if self.world.options.separate_queue:
            queue = self._over_the_network(self.world.queue_database)
            if not self.world.options.queue_leases_early:
                queue = replace(queue, eager_jobs=None)
            stores = with_separate_queue(stores, queue, self.runtime)
            # The projector saves views in the background, as it does in another database.
            stores = replace(stores, has_separate_views=True)
        # Harsher than any store: its queue goes by one clock, and every process by another.
        stores = replace(stores, now_ms=self.runtime.now_ms)
        return Environment(
            self.runtime,
            stores,
            self.world.transport(self),
            MASTER,
            built=_without_reports,
        )

    def _over_the_network(self, database: MemoryDatabase) -> Stores:
        stores = database.stores()
        ports: dict[str, Any] = {
            name: Port(self, name, getattr(stores, name))
            for name in stores.capabilities - {"fences", "token_buckets"}
        }
        return replace(stores, projects_inline=self.world.options.inline, **ports)

    async def start(self) -> None:
        try:
            await self.engine.start()
        except StoreError:
            # A supervisor would start it again.
            self.world.crash(self, "store_error_at_start")
            return
        self.is_ready = True
        self.pipeline.telemetry.crashed = self._crashed  # type: ignore[method-assign]
        self.world.note(self, "started")

    async def stop(self) -> None:
        self.is_stopped = True
        try:
            await self.engine.stop()
            self.world.note(self, "stopped")
        finally:
            self.is_dead = True

    def _crashed(self, component: str, error: BaseException) -> None:
        if not self.is_dead:
            # What its coroutines do when they are closed after the run is no part of it.
            self.world.breaks("no component crashes", f"{component}: {error!r}")


class Port:
    """A port over the network: time passes before and after the effect, and in either time the
    process may die or the call fail.
    """

    def __init__(self, process: Process, name: str, port: object) -> None:
        self._process, self._name, self._port = process, name, port

    def __getattr__(self, verb: str) -> Any:
        original = getattr(self._port, verb)
        call = original if verb in HINTS else self._over_the_network(verb, original)
        setattr(self, verb, call)
        return call

    def _over_the_network(self, verb: str, original: Any) -> Any:
        process, name = self._process, f"{self._name}.{verb}"
        network = process.world.network

        async def call(*args: Any, **kwargs: Any) -> Any:
            fate = network.fate()
            process.before += 1
            try:
                await network.pass_through(process)
            finally:
                process.before -= 1
            if fate == "store_error":
                raise StoreError(f"{name}: out of reach")
            answer = await original(*args, **kwargs)
            process.world.stored(process, name, args, answer)
            if verb == "shadow":
                answer = Port(process, "shadow", answer)
            process.after += 1
            try:
                await network.pass_through(process)
            finally:
                process.after -= 1
            if fate == "answer_lost":
                raise StoreError(f"{name}: the answer was lost")
            return answer

        return call


class Network:
    """Between processes and stores."""

    def __init__(self, world: World) -> None:
        self._world = world

    def fate(self) -> str:
        world, rates = self._world, self._world.rates
        if rates.store_error and world.random.random() < rates.store_error:
            return world.hit("store_error")
        if rates.answer_lost and world.random.random() < rates.answer_lost:
            return world.hit("answer_lost")
        return ""

    async def pass_through(self, process: Process) -> None:
        world, rates, random = self._world, self._world.rates, self._world.random.random
        if rates.crash_at_store and random() < rates.crash_at_store:
            world.hit("crash_before_commit" if process.before else "crash_after_commit")
            world.crash(process, "at_store")
        elif rates.freeze and random() < rates.freeze:
            world.freeze(process)
        if rates.store_slow and random() < rates.store_slow:
            world.hit("store_slow")
            await world.loop.delay(random() * 6)
        elif random() < 0.5:
            await world.loop.delay(0)
        else:
            await world.loop.delay(random() * STORE_MS_MAX / 1000)


def _without_reports(pipeline: Pipeline) -> None:
    """Reports of live processes affect no request; without them a seed replays as it was pinned."""
    pipeline.components.runs.pop("presence", None)
