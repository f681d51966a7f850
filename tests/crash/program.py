"""The program that is killed: submits some requests and works until it reaches its point; without a
point it only works.

Orders go to a receiver that remembers keys, letters to one that can be asked, parcels to one that
knows nothing.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import gesta.maintenance.sweeper
import gesta.ports.leases
import gesta.projector.partitions
import gesta.worker.pool
from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Options,
    Outcome,
    Payload,
    Request,
    Retry,
    RetryPolicy,
)
from gesta.domain.commands import Rules
from gesta.domain.outcome import UnknownPolicy
from gesta.engine.environment import Environment, Wiring, master_key
from gesta.errors import StoreError
from gesta.outbound.http import PrivateAddressGuard
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.ports.stores import Stores
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings, load
from gesta.stores import open_events, open_queue, open_stores, open_views
from gesta.stores.separate_events import with_separate_events
from gesta.stores.separate_queue import with_separate_queue
from gesta.stores.separate_views import with_separate_views
from gesta.stores.sqlite.database import Database
from tests.crash.points import POINTS, Layout, Point
from tests.short_leases import shorten_leases

T = TypeVar("T")

RETRY = RetryPolicy(attempts=100, base_seconds=0.02, cap_seconds=0.1)
ASKING = RetryPolicy(attempts=100, base_seconds=0.05, cap_seconds=0.1)
#: Not secret: it protects nothing but the stores of one test.
MASTER_KEY = base64.b64encode(bytes(range(32))).decode()
POLICIES: dict[str, UnknownPolicy] = {"order": "resend", "letter": "reconcile", "parcel": "manual"}


@dataclass(frozen=True)
class Plan:
    """What one process does.

    `point` is a name; it stops there at the n-th call that concerns a request.
    """

    folder: str
    receiver: str
    #: One file, the queue in a second file, or the database server of `url`.
    layout: Layout
    url: str = ""
    #: Events, jobs and views elsewhere.
    events_url: str | None = None
    queue_url: str | None = None
    views_url: str | None = None
    seed: int = 0
    numbers: tuple[int, ...] = ()
    #: So many of them are submitted at once.
    burst: int = 0
    point: str | None = None
    nth: int = 1
    journal: bool = False
    #: Projects what it appends in the same commit, where it can.
    inline: bool = True
    #: Its worker's slots are offered with the jobs that it puts.
    eager_dispatch: bool = True
    #: Its clock is ahead by so much.
    ahead_ms: int = 0
    #: Projects, relays and sweeps even if other processes do.
    greedy: bool = False
    #: A request without a job is found after so long instead of a minute.
    lost_ms: int = 60_000
    lease_seconds: float = 0.8
    #: How long a call lasts beside the way to the receiver and back.
    call_seconds: float = 0.0
    deliver_in_seconds: float = 0.0
    ttl_seconds: float = 600.0

    def settings(self) -> Settings:
        urls = (
            {"url": self.url, "master_key": MASTER_KEY}
            if self.url
            else {"url": f"sqlite:///{self.folder}/gesta.db"}
        )
        if self.layout == "separate":
            urls["queue_url"] = f"sqlite:///{self.folder}/queue.db"
        if self.events_url is not None:
            urls["events_url"] = self.events_url
        if self.queue_url is not None:
            urls["queue_url"] = self.queue_url
        if self.views_url is not None:
            urls["views_url"] = self.views_url
        return load(urls | {"allow_private": ["127.0.0.1/32"], "log_level": "critical"})


class Order(Payload, frozen=True):
    n: int


class Letter(Payload, frozen=True):
    n: int


class Parcel(Payload, frozen=True):
    n: int


#: Held during each commit.
COMMITTING = threading.Lock()

KINDS: Sequence[type[Order | Letter | Parcel]] = (Order, Letter, Parcel)


def payload_of(number: int) -> Order | Letter | Parcel:
    return KINDS[number % 3](number)


class Watch:
    """Sees every call; stops the process at its point."""

    def __init__(
        self, point: Point | None, nth: int, folder: str, numbers: Sequence[int] = ()
    ) -> None:
        self._point, self._left, self._folder = point, nth, Path(folder)
        #: How many of each kind have not been called yet.
        self._coming = Counter(f"crash.{[*POLICIES][number % 3]}" for number in numbers)
        self._called: set[str] = set()
        self._gathered: list[str] = []
        self._kinds: set[str] = set()
        self._resumed = asyncio.Event()

    @property
    def was_frozen(self) -> bool:
        return self._resumed.is_set()

    def __call__(self, when: str, at: str, args: Sequence[Any], answer: Any) -> None:
        if self._is_at(when, at) and (victims := self._victims(args, answer)):
            self._left -= 1
            if self._left == 0:
                self._stop(victims)

    async def gather(self, when: str, attempt: Attempt) -> None:
        """At a call of the provider: those that arrive wait for each other, until there is one of
        each kind.
        """
        if not self._is_at(when, "executor.call") or self.was_frozen:
            return
        self._left -= 1
        self._coming[attempt.flow] -= attempt.request_id not in self._called
        self._called.add(attempt.request_id)
        if self._left > 0 and self._coming[attempt.flow] > 0:
            # The last of a kind stays, whatever the order in which they come: else the others would
            # wait for it for ever.
            return
        self._gathered.append(attempt.request_id)
        self._kinds.add(attempt.flow)
        if len(self._kinds) == len(POLICIES):
            self._stop(self._gathered)
        await self._resumed.wait()

    def _is_at(self, when: str, at: str) -> bool:
        return self._point is not None and (self._point.when, self._point.at) == (when, at)

    def _victims(self, args: Sequence[Any], answer: Any) -> Sequence[str]:
        assert self._point is not None
        assert self._point.victims is not None
        return self._point.victims(args, answer)

    def _stop(self, victims: Sequence[str]) -> None:
        assert self._point is not None
        # Whole or not there: the parent looks for this name.
        draft = self._folder / "victims.draft"
        draft.write_bytes(msgspec.json.encode(victims))
        draft.rename(self._folder / "victims")
        if not self._point.frozen:
            os.kill(os.getpid(), signal.SIGKILL)
        with COMMITTING:
            # Frozen in the middle of a commit it would hold the file, and no process could do
            # anything: SQLite has no lease on its lock.
            os.kill(os.getpid(), signal.SIGSTOP)
        self._resumed.set()


class Watched:
    """A port that announces its calls before and after."""

    def __init__(self, name: str, port: Any, watch: Watch) -> None:
        self._name, self._port, self._watch = name, port, watch

    def __getattr__(self, verb: str) -> Any:
        original = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(original):
            return original

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._watch("before", f"{self._name}.{verb}", args, None)
            answer = await original(*args, **kwargs)
            self._watch("after", f"{self._name}.{verb}", args, answer)
            return answer

        return call


def watched(stores: Stores, watch: Watch, *names: str) -> Stores:
    ports: dict[str, Any] = {name: Watched(name, getattr(stores, name), watch) for name in names}
    return replace(stores, **ports)


class OtherClock(SystemRuntime):
    def __init__(self, ahead_ms: int) -> None:
        super().__init__()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def flows(receiver: str, watch: Watch, *, journal: bool, call_seconds: float = 0.0) -> list[Flow]:
    async def call(payload: Any, attempt: Attempt) -> Outcome:
        await watch.gather("before", attempt)
        headers = {"Idempotency-Key": attempt.key} if isinstance(payload, Order) else {}
        answer = await attempt.http.post(
            f"{receiver}/http/call",
            json={"n": payload.n, "reference": attempt.key},
            headers=headers,
        )
        await asyncio.sleep(call_seconds)
        await watch.gather("after", attempt)
        return Done(id=answer["id"])

    async def ask(payload: Any, attempt: Attempt) -> Outcome:
        answer = await attempt.http.get(f"{receiver}/sandbox/http/effects")
        found = [
            effect["id"]
            for effect in answer["effects"]
            if effect["data"]["reference"] == attempt.key
        ]
        return Done(id=found[0]) if found else Retry("no_trace")

    return [
        Flow(
            f"crash.{name}",
            kind,
            call,
            Rules(RETRY, policy, ask_after_seconds=0.05, asking=ASKING),
            ask if policy == "reconcile" else None,
            timeout_seconds=5,
            journal=journal,
        )
        for kind, (name, policy) in zip(KINDS, POLICIES.items(), strict=True)
    ]


async def wire(plan: Plan, settings: Settings, watch: Watch) -> Environment:
    """As gesta.engine.environment.wire_really, with every port watched and a clock of its own that
    may be wrong; the stores have theirs.
    """
    runtime = OtherClock(plan.ahead_ms)
    # A server has a clock of its own; for a file it is the machine's.
    machine = runtime if plan.url else SystemRuntime()
    opened = await open_stores(settings.url, machine)
    stores = watched(
        opened,
        watch,
        *opened.capabilities - {"vault", "transactions", "fences", "token_buckets", "outbox"},
    )
    if settings.events_url is not None:
        events = await open_events(settings.events_url, runtime)
        stores = with_separate_events(stores, events, runtime)
    if settings.views_url is not None:
        stores = with_separate_views(stores, await open_views(settings.views_url, runtime))
    if settings.queue_url is not None and plan.queue_url is not None:
        # A server has a clock of its own.
        stores = with_separate_queue(stores, await open_queue(settings.queue_url, runtime), runtime)
    elif settings.queue_url is not None:
        queue = watched(await open_stores(settings.queue_url, machine), watch, "queue")
        stores = with_separate_queue(stores, queue, runtime)
    stores = replace(
        watched(stores, watch, "transactions"),
        projects_inline=stores.projects_inline and plan.inline,
    )
    master, _ = await master_key(settings, stores, runtime)
    return Environment(
        runtime, stores, AioHttpTransport(PrivateAddressGuard(allow=settings.allow_private)), master
    )


def hurry(plan: Plan) -> None:
    """Short leases, and a sweeper that looks often."""
    shorten_leases(plan.lease_seconds, 0.2)
    gesta.maintenance.sweeper.PERIOD_SECONDS = 0.1
    gesta.maintenance.sweeper.LOST_AGE_MS, gesta.maintenance.sweeper.LOST_PERIOD_SECONDS = (
        plan.lost_ms,
        plan.lost_ms / 1000,
    )
    gesta.maintenance.sweeper.UNSEEN_AGE_MS = plan.lost_ms


async def always(_: gesta.ports.leases.Role) -> bool:
    return True


async def all_of_them(partitions: gesta.projector.partitions.Partitions) -> frozenset[int]:
    partitions.ours = frozenset(range(partitions.count))
    return partitions.ours


async def wait_for_ever(_: gesta.worker.pool.Pool) -> None:
    await asyncio.Event().wait()


def commit(database: Database, calls: list[Any], original: Any = Database._commit) -> None:
    with COMMITTING:
        original(database, calls)


async def insist(plan: Plan, act: Callable[[], Awaitable[T]]) -> T:
    """Again and again while a server is out of reach, as a program does after "try later".

    A file never is.
    """
    while True:
        try:
            return await act()
        except StoreError:
            if not (plan.url or plan.events_url):
                raise
            await asyncio.sleep(0.05)


async def submit(engine: Engine, plan: Plan, *, rests: bool) -> None:
    """Some at once, then one after the other with small pauses, so that batches of all sizes form;
    each is noted once it is acknowledged.
    """
    dice, burst = random.Random(plan.seed), plan.numbers[: plan.burst]
    ttl = timedelta(seconds=plan.ttl_seconds)
    with (Path(plan.folder) / f"acknowledged-{os.getpid()}").open("w", encoding="ascii") as notes:
        together = await engine.submit_many(
            [(payload_of(number), Options(str(number), ttl=ttl)) for number in burst]
        )
        for number, accepted in zip(burst, together, strict=True):
            assert isinstance(accepted, Request)
            notes.write(f"{number} {accepted.id}\n")
        for place, number in enumerate(plan.numbers[plan.burst :]):
            # A process at rest takes each by itself, and as it is put: on a busy machine all might
            # be one take, and no second one come.
            while rests and place > len(plan.numbers) // 2 and engine.pipeline.pool.lease.held:
                await asyncio.sleep(0.002)
            deliver_at = (
                datetime.now(UTC) + timedelta(seconds=plan.deliver_in_seconds)
                if plan.deliver_in_seconds
                else None
            )
            ask = partial(
                engine.submit, payload_of(number), key=str(number), ttl=ttl, deliver_at=deliver_at
            )
            request = await insist(plan, ask)
            notes.write(f"{number} {request.id}\n")
            notes.flush()
            await asyncio.sleep(dice.choice((0, 0, 0.002, 0.01)))


async def work(plan: Plan) -> None:
    point = next((point for point in POINTS if point.name == plan.point), None)
    watch = Watch(point, plan.nth, plan.folder, plan.numbers)
    hurry(plan)
    if point is not None and point.takes_none:
        setattr(gesta.worker.pool.Pool, "run", wait_for_ever)  # noqa: B010 -- of this process
    if plan.greedy:
        setattr(gesta.ports.leases.Role, "is_ours", always)  # noqa: B010 -- of this process
        setattr(gesta.projector.partitions.Partitions, "hold", all_of_them)  # noqa: B010
    setattr(Database, "_commit", commit)  # noqa: B010 -- of this process
    Wiring.wire = staticmethod(lambda settings: wire(plan, settings, watch))
    declared = flows(plan.receiver, watch, journal=plan.journal, call_seconds=plan.call_seconds)
    engine = Engine(flows=declared, settings=plan.settings())
    await insist(plan, engine.start)
    if not plan.eager_dispatch:
        engine.pipeline.projector.eager_dispatch = None
    await submit(engine, plan, rests=point is not None and point.victims is not None)
    while not (watch.was_frozen and engine.pipeline.pool.lease.held == 0):
        await asyncio.sleep(0.02)
    (Path(plan.folder) / "let go").touch()
    await asyncio.Event().wait()


def main(plan: Plan) -> None:
    asyncio.run(work(plan))
