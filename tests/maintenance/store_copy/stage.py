"""Two SQLite files, engines on them whose effects are counted, and a copy from one to the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gesta import (
    Attempt,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Personal,
    Retry,
    RetryPolicy,
    Unknown,
)
from gesta.domain.commands import Rules
from gesta.domain.events import Actor
from gesta.domain.state import State
from gesta.domain.stored_job import job_at
from gesta.engine.environment import open_ports
from gesta.errors import Fenced
from gesta.maintenance.store_copy import copy as copying
from gesta.maintenance.store_copy import roles
from gesta.maintenance.store_copy.copy import Copy, CopyReport, unfence
from gesta.maintenance.store_copy.plan import CopyPlan, Home
from gesta.ports.job_store import Claim, Completion, Held
from gesta.ports.stores import Stores
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.security.envelope_encryption import MasterKey

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
#: Far more than anything here takes.
PATIENCE_SECONDS = 60.0
OPERATOR = Actor("operator")


class Letter(Payload, frozen=True):
    n: int
    comes_to: str = "done"
    to: Personal[str] = ""
    own: str | None = None


@dataclass
class Stage:
    folder: Path
    #: Where a store is, unless it is a file in the folder.
    urls: dict[str, str] = field(default_factory=dict)
    #: The other databases of a store: name → settings.
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Which letter had its effect how often.
    effects: Counter[int] = field(default_factory=Counter)
    #: Set when a call is in the middle of a call that does not end.
    is_stuck: asyncio.Event = field(default_factory=asyncio.Event)
    messages: list[str] = field(default_factory=list)

    def url(self, name: str) -> str:
        return self.urls.get(name, f"sqlite:///{self.folder / name}.db")

    def settings(self, name: str) -> Settings:
        return Settings(url=self.url(name), master_key=KEY, **self.parts.get(name, {}))

    def flow(self) -> Flow:
        async def send(payload: Letter, attempt: Attempt) -> Outcome:
            if payload.comes_to == "later":
                return Retry("busy", after_seconds=600)
            self.effects[payload.n] += 1
            if payload.comes_to == "stuck":
                self.is_stuck.set()
                await asyncio.Event().wait()
            return (
                Unknown("no_answer")
                if payload.comes_to == "unknown"
                else Done(f"letter-{payload.n}")
            )

        rules = Rules(RetryPolicy(attempts=5), "manual")
        return Flow(
            "copy.letter",
            Letter,
            send,
            rules,
            timeout_seconds=60,
            request_id=lambda letter: letter.own,
        )

    def engine(self, name: str, *, work: bool = True) -> Engine:
        return Engine(flows=[self.flow()], settings=self.settings(name), work=work)

    @asynccontextmanager
    async def stores(self, *names: str) -> AsyncIterator[list[Stores]]:
        async with AsyncExitStack() as stack:
            opened = [await open_ports(self.settings(name), SystemRuntime()) for name in names]
            for one in opened:
                stack.push_async_callback(one.close)
            yield opened

    async def copy(
        self,
        tenant: str | None = None,
        *,
        source: str = "source",
        target: str = "target",
        key: str = KEY,
        wait_seconds: float = 0.0,
    ) -> CopyReport:
        async with self.stores(source, target) as (giving, taking):
            homes = Home(giving, self.url(source)), Home(taking, self.url(target))
            copy = Copy(
                CopyPlan(*homes, tenant),
                MasterKey(key, "the test"),
                runtime=SystemRuntime(),
                progress=lambda *_: None,
                tell=self.messages.append,
            )
            return await copy.run(wait_seconds, OPERATOR)

    async def unfence(self, name: str) -> None:
        async with self.stores(name) as (stores,):
            assert await unfence(Home(stores, self.url(name)), None)


JOB = "0a1b2c3d-0000-4000-8000-00000000000{}"
WORKER = "0a0a0a0a-0000-4000-8000-000000000001"


async def put_stored_jobs(stores: Stores) -> Held:
    """A completed job of a slow endpoint, one that a worker holds and one that waits."""
    assert stores.job_store is not None
    jobs = [job_at(stores.now_ms(), id=JOB.format(n), name="a.b") for n in range(3)]
    await stores.job_store.create(jobs)
    claimed = await stores.job_store.claim(Claim(worker_id=WORKER, names=("a.b",), limit=2))
    first, second = (one.value.held for one in claimed.value or () if one.value)
    await stores.job_store.complete([Completion(first, "1")])
    return second


async def check_stored_jobs(source: Stores, target: Stores, held: Held) -> None:
    """The target has them as they were; the source changes nothing any more."""
    assert source.job_store is not None
    assert target.job_store is not None
    (refused,) = await source.job_store.complete([Completion(held)])
    assert refused.error is not None
    assert isinstance(refused.error.exception, Fenced)
    found = await target.job_store.get([JOB.format(n) for n in range(3)])
    assert [one.value and int(one.value.status) for one in found] == [400, 300, 100]
    assert await target.job_store.counts() == await source.job_store.counts()
    assert await target.job_store.heartbeat([held]) == ["held"]
    claimed = await target.job_store.claim(Claim(worker_id=WORKER, names=("a.b",), limit=9))
    assert [one.value and one.value.job.id for one in claimed.value or ()] == [JOB.format(2)]


async def eventually(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        answer = condition()
        if await answer if asyncio.iscoroutine(answer) else answer:
            return
        assert asyncio.get_running_loop().time() < deadline, "it never came to be so"
        await asyncio.sleep(0.02)


async def ended(engine: Engine, *requests: str, tenant: str = "default") -> list[State]:
    """The requests, once nothing more happens to them by itself."""

    async def states() -> list[State]:
        return [(await engine.get(one, tenant=tenant)).state for one in requests]

    async def is_over() -> bool:
        return all(state.is_terminal or state.waits_for_a_person for state in await states())

    await eventually(is_over)
    return await states()


async def has_attempts(engine, request_id, count=1, tenant="default"):
    return (await engine.get(request_id, tenant=tenant)).state.attempts == count


def shorten_leases(monkeypatch):
    monkeypatch.setattr(roles, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(copying, "LEASE_SECONDS", 0.2)


async def is_held(engine, count):
    """Whether so many requests wait for a resume."""
    return sum(one.count for one in await engine.admin.held()) == count
