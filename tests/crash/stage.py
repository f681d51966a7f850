"""Where the program is put on: a folder for its stores, a receiver that survives it, processes that
can be killed, and the look at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from gesta import Engine
from gesta.domain.events import AttemptFailed
from gesta.domain.ids import job_id
from gesta.domain.state import State
from gesta.runtime.clock import SystemRuntime
from gesta.sandbox.receiver import Call
from gesta.sandbox.server import SandboxServer
from tests.crash.program import Plan, Watch, flows, main

#: Children are forked from a process that has imported everything: they live from the first
#: millisecond.
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.crash.program", "tests.crash.cashier"])
#: Far more than anything here takes.
PATIENCE_SECONDS = 60.0
RETRY_AFTER_SECONDS = 2


@dataclass
class Stage:
    plan: Plan
    server: SandboxServer
    #: When each number was called, epoch milliseconds.
    calls: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    _children: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server.sandbox.http.on(self._note)

    def _note(self, call: Call) -> bool:
        self.calls[call.data["n"]].append(SystemRuntime().now_ms())
        return False

    def throttle(self) -> None:
        """Refuse the first call of each number."""
        self.server.sandbox.http.on(
            lambda call: len(self.calls[call.data["n"]]) == 1,
            status=503,
            retry_after=RETRY_AFTER_SECONDS,
        )

    @contextmanager
    def process(self, **changes: Any) -> Iterator[BaseProcess]:
        child = PROCESSES.Process(target=main, args=(replace(self.plan, **changes),))
        child.start()
        self._children.append(child)
        try:
            yield child
        finally:
            child.kill()
            child.join()

    def ended(self) -> list[int]:
        return [child.exitcode for child in self._children if child.exitcode is not None]

    async def victims(self, child: BaseProcess) -> list[str]:
        """The requests that the point met, once the program has stopped there."""
        path = Path(self.plan.folder) / "victims"
        await eventually(
            lambda: path.exists() or child.exitcode is not None, "the point was never reached"
        )
        assert path.exists(), f"the program ended by itself: {child.exitcode}"
        return msgspec.json.decode(path.read_bytes(), type=list[str])

    async def let_go(self) -> None:
        """The program that was frozen has gone on, and holds nothing any more."""
        await eventually(
            (Path(self.plan.folder) / "let go").exists, "the frozen program did not let go"
        )

    def acknowledged(self) -> dict[int, set[str]]:
        """Number → the ids that were acknowledged for it."""
        reported: dict[int, set[str]] = defaultdict(set)
        for notes in Path(self.plan.folder).glob("acknowledged-*"):
            for line in notes.read_text(encoding="ascii").splitlines():
                number, _, request_id = line.partition(" ")
                # The last line may have been cut in the middle.
                if len(request_id) == 36:
                    reported[int(number)].add(request_id)
        return reported

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Engine]:
        """An engine that does not work, to look at the stores."""
        watch = Watch(None, 0, self.plan.folder)
        async with Engine(
            flows=flows(self.plan.receiver, watch, journal=False),
            settings=self.plan.settings(),
            work=False,
        ) as engine:
            yield engine

    async def at_rest(self, engine: Engine, *, at_least: int = 0) -> dict[str, State]:
        """All requests by id, once nothing more happens by itself: no event is unseen, no job is
        left.
        """
        states: dict[str, State] = {}
        left: dict[str, Any] = {}

        async def is_over() -> bool:
            # First the log: what is projected only after the views were read would be missing among
            # them.
            left["unseen"] = await engine.admin.unseen()
            if left["unseen"]:
                return False
            states.clear()
            states.update(await self.states(engine))
            jobs = [
                job_id(state.id, version)
                for state in states.values()
                for version in range(1, state.version + 1)
            ]
            left["requests to come"] = max(0, at_least - len(states))
            left["under way"] = [
                (state.key, state.flow, state.status, state.reason, state.attempts, state.due_at)
                for state in states.values()
                if not state.is_terminal and (state.status != "unknown" or state.due_at is not None)
            ]
            left["jobs"] = await engine.pipeline.environment.stores.live_jobs(jobs)
            return not any(left.values())

        await eventually(
            is_over,
            lambda: f"not everything came to its end: {left}, processes ended: {self.ended()}",
        )
        assert await engine.admin.quarantined() == []
        return states

    async def states(self, engine: Engine) -> dict[str, State]:
        return {view.state.id: view.state for view in await engine.find(limit=1000)}

    def effects(self) -> Counter[int]:
        return Counter(effect.data["n"] for effect in self.server.sandbox.http.effects)


def number_of(state: State) -> int:
    assert state.key is not None
    return int(state.key)


def kind_of(state: State) -> str:
    return state.flow.partition(".")[2]


async def eventually(condition: Any, error: str | Callable[[], str]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        answer = condition()
        if await answer if asyncio.iscoroutine(answer) else answer:
            return
        assert asyncio.get_running_loop().time() < deadline, (
            error if isinstance(error, str) else error()
        )
        await asyncio.sleep(0.03)


@asynccontextmanager
async def stage(folder: Path, seed: int, **plan: Any) -> AsyncIterator[Stage]:
    async with SandboxServer() as server:
        yield Stage(Plan(str(folder), server.url, seed=seed, **plan), server)


async def check_promises(
    on: Stage, engine: Engine, states: dict[str, State], *, duplicates: int = 0
) -> None:
    """G1 to G5 of design.md, for every request.

    `duplicates`: how many more effects of a letter a lease lost during a call may cost.
    """
    acknowledged, effects = on.acknowledged(), on.effects()
    # G1: every key leads to one request, and what was acknowledged is that one.
    assert len({state.key for state in states.values()}) == len(states)
    assert [
        number for number, ids in acknowledged.items() if len(ids) != 1 or not ids <= set(states)
    ] == []
    for state in states.values():
        number, kind = number_of(state), kind_of(state)
        description = (
            kind,
            state.status,
            state.reason,
            state.attempts,
            f"effects {effects[number]}",
            f"calls {on.calls[number]}",
        )
        # G2: it ended, or is visibly unknown with a reason. Nothing of all this expired.
        assert state.status == "completed" or (
            kind == "parcel" and state.status == "unknown" and state.reason
        ), description
        # G3: one effect where the receiver dedupes or can be asked, and never one too many where it
        # can do neither.
        allowed = {1, 1 + duplicates} if kind == "letter" else {1}
        assert effects[number] in (allowed if state.status == "completed" else allowed | {0}), (
            description
        )
    # G4: a success is final: nothing was appended to it.
    for state in states.values():
        history = [name for name, _, _ in await engine.history(state.id, flow=state.flow)]
        if state.status == "completed":
            assert (
                sum("Completed" in name or "OutcomeResolved" in name for name in history[-1:]) == 1
            ), history
    # G5: the same views again, and no job for any of them.
    await engine.admin.rebuild()
    assert await on.states(engine) == states
    assert await on.at_rest(engine) == states
    assert on.effects() == effects


async def check_waits(on: Stage, engine: Engine, state: State) -> None:
    """No call came before the time that the last failure had set."""
    times = on.calls[number_of(state)]
    failures = [
        event
        for _, event, _ in await engine.history(state.id, flow=state.flow)
        if isinstance(event, AttemptFailed)
    ]
    assert len(failures) == len(times) - 1
    for failure, called_ms in zip(failures, times[1:], strict=True):
        assert failure.next_attempt_at is not None
        assert called_ms >= failure.next_attempt_at


def resume(child: BaseProcess) -> None:
    assert child.pid is not None
    os.kill(child.pid, signal.SIGCONT)
