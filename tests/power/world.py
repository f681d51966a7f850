"""An engine on a disk that loses its power: load, the moments at which the light goes out, and what
is found after the reboot.
"""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from gesta import (
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    GestaError,
    NotFound,
    Options,
    Outcome,
    Payload,
    Request,
    RetryPolicy,
)
from gesta.domain.commands import Rules
from gesta.domain.state import State
from gesta.engine.environment import Environment, Wiring
from gesta.outbound.http import PrivateAddressGuard
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.security.envelope_encryption import MasterKey
from gesta.stores import open_stores
from tests.power.disk import Disk, PowerVfs

REQUESTS = 40
SUBMITTERS = 6
KEY = base64.b64encode(bytes(32)).decode()
#: A machine that lost its power is back after this long: all leases have run out.
REBOOT_MS = 60_000
REST_SECONDS = 20.0


class Order(Payload, frozen=True):
    """To a receiver that remembers our key."""

    n: int


class Parcel(Payload, frozen=True):
    """To one that remembers nothing: after an unknown outcome a person decides."""

    n: int


class Outcomes:
    """The outside world: how often each effect was asked for, under which key."""

    def __init__(self, before: Counter[tuple[int, str]] | None = None) -> None:
        self.calls = Counter(before or {})
        #: Called as soon as something has happened: the other moments at which the power may go.
        self.moment: Callable[[], None] = lambda: None

    def flows(self) -> list[Flow]:
        async def act(payload: Order | Parcel, attempt: Attempt) -> Outcome:
            self.calls[payload.n, attempt.key] += 1
            self.moment()
            await asyncio.sleep(0.002)
            return Done(id=str(payload.n))

        retry = RetryPolicy(attempts=10, base_seconds=0.01, cap_seconds=0.05)
        return [
            Flow("power.order", Order, act, Rules(retry, "resend")),
            Flow("power.parcel", Parcel, act, Rules(retry, "manual")),
        ]


@dataclass(frozen=True)
class Blackout:
    """The light went out: what was acknowledged and done until then, and what the disk still
    has.
    """

    acknowledged: dict[int, str]
    calls: Counter[tuple[int, str]]
    files: dict[str, bytes]


@dataclass
class Load:
    """Submits and works on a disk, and keeps what each of some random moments would leave."""

    disk: Disk
    dice: random.Random
    #: How likely the power goes at a write, a sync or an effect. The load goes on: the next moment
    #: is another world.
    chance: float
    limit: int
    world: Outcomes = field(default_factory=Outcomes)
    acknowledged: dict[int, str] = field(default_factory=dict)
    blackouts: list[Blackout] = field(default_factory=list)

    def moment(self) -> None:
        with self.disk.lock:
            if len(self.blackouts) < self.limit and self.dice.random() < self.chance:
                # In this order: what was acknowledged and done by now has its trace on the disk,
                # whatever is written meanwhile.
                acknowledged, calls = dict(self.acknowledged), Counter(self.world.calls)
                self.blackouts.append(
                    Blackout(acknowledged, calls, self.disk.after_power_loss(self.dice))
                )

    async def run(self, path: Path) -> None:
        """Many at once: the power goes at any write, sync or effect."""
        self.disk.moment = self.world.moment = self.moment
        async with engine_on(path, self.world) as engine:
            numbers = iter(range(REQUESTS))

            async def submitter() -> None:
                for n in numbers:
                    request = await engine.submit(payload(n), key=str(n))
                    self.acknowledged[n] = request.id
                    await asyncio.sleep(0.003)

            await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))

    async def run_quietly(self, path: Path) -> None:
        """One after the other, so that no other process's sync helps: the power goes right after an
        acknowledgement or an effect.
        """
        self.world.moment = self.moment
        async with engine_on(path, self.world) as engine:
            for n in range(REQUESTS):
                request = await engine.submit(payload(n), key=str(n))
                self.acknowledged[n] = request.id
                self.moment()
                await request.outcome()


def payload(n: int) -> Payload:
    return Order(n) if n % 2 else Parcel(n)


def engine_on(path: Path, world: Outcomes) -> Engine:
    return Engine(settings=Settings(url=f"sqlite:///{path}", master_key=KEY), flows=world.flows())


@contextmanager
def losing_power(disk: Disk) -> Iterator[None]:
    """Every SQLite file of this process is on that disk."""
    vfs = PowerVfs(disk)
    try:
        yield
    finally:
        vfs.unregister()


class AfterReboot(SystemRuntime):
    """The clock of a machine that was off for a while."""

    def now_ms(self) -> int:
        return super().now_ms() + REBOOT_MS


@contextmanager
def rebooted() -> Iterator[None]:
    """Engines that start from here on start after the reboot."""

    async def wire(settings: Settings) -> Environment:
        runtime = AfterReboot()
        stores = await open_stores(settings.url, runtime)
        return Environment(
            runtime, stores, AioHttpTransport(PrivateAddressGuard()), MasterKey(KEY, "the test")
        )

    before, Wiring.wire = Wiring.wire, staticmethod(wire)
    try:
        yield
    finally:
        Wiring.wire = staticmethod(before)


async def faults_after(blackout: Blackout, folder: Path) -> list[str]:
    """Start again on what the disk has, let everything come to rest, and tell what is not as
    promised.
    """
    folder.mkdir()
    for name, content in blackout.files.items():
        (folder / Path(name).name).write_bytes(content)
    path, world = folder / "gesta.db", Outcomes(blackout.calls)
    if not path.exists():
        return (
            [f"{len(blackout.acknowledged)} were acknowledged, and there is no file"]
            if blackout.acknowledged
            else []
        )
    try:
        with rebooted():
            async with engine_on(path, world) as engine:
                faults = await _kept(engine, blackout)
                states = {
                    n: await _at_rest(engine, one) for n, one in blackout.acknowledged.items()
                }
    except (GestaError, apsw.Error) as error:
        return [f"the store cannot be used: {error}"]
    db = apsw.Connection(str(path))
    faults += [
        f"integrity_check: {row[0]}"
        for row in db.execute("pragma integrity_check")
        if row[0] != "ok"
    ]
    db.close()
    return faults + [fault for n, state in states.items() if (fault := _fault_of(n, state, world))]


async def _kept(engine: Engine, blackout: Blackout) -> list[str]:
    """G1: the key of each leads to the very request that was acknowledged."""
    numbers = list(blackout.acknowledged)
    again = await engine.submit_many([(payload(n), Options(key=str(n))) for n in numbers])
    lost = [
        n
        for n, one in zip(numbers, again, strict=True)
        if isinstance(one, Conflict)
        or (one.verdict, one.id) != ("duplicate", blackout.acknowledged[n])
    ]
    return [f"acknowledged and lost: {lost}"] if lost else []


async def _at_rest(engine: Engine, request_id: str) -> State | None:
    """A request once nothing more happens by itself; None when there is no such request."""
    try:
        request: Request = await engine.request(request_id)
    except NotFound:
        return None
    await request.outcome(timeout=REST_SECONDS)
    return (await request.view()).state


def _fault_of(n: int, state: State | None, world: Outcomes) -> str | None:
    if state is None:
        return None
    keys = [key for number, key in world.calls if number == n]
    calls = sum(world.calls[n, key] for key in keys)
    if len(keys) > 1:
        return f"{n} was sent under {len(keys)} keys"
    if state.status == "completed":
        if calls == 0:
            return f"{n} is sent, and nothing happened"
    elif state.status != "unknown" or n % 2:
        return f"{n} ended as {state.status}: {state.reason}"
    # G3: only who remembers our key may be asked twice.
    return f"{n} happened {calls} times" if calls > 1 and n % 2 == 0 else None
