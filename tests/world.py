"""What the tests of the components share: a provider that plays a script, ports that fail on
demand, the death of a process.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from gesta import Attempt, Done, Engine, Flow, Payload, Request
from gesta.domain.commands import Rules
from gesta.domain.ids import event_id
from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.stream_names import request_stream
from gesta.errors import StoreError
from gesta.ports.event_store import Append, Appended, NewEvent, Recorded
from gesta.requests.waiters import outcome_of
from gesta.testing.plugin import Harness

FLOW = "test.note"
#: The details of the reason `lease_lost`.
WORKER_LOST = "its worker died or lost the store during the attempt"
LEASE_CUT = "the worker could not renew its lease in the store and cut the call"
URL = "memory:components"

Play = Outcome | BaseException | Callable[[Any, Attempt], Awaitable[object]]


class Note(Payload, frozen=True):
    text: str = "hello"


class Provider:
    """An executor that plays its script, one entry for each call, and remembers the calls.

    After the end of the script it says Done.
    """

    def __init__(self, *script: Play) -> None:
        self.script = deque(script)
        self.calls: list[Attempt] = []
        self.payloads: list[Any] = []

    async def execute(self, payload: Any, attempt: Attempt) -> Outcome:
        self.calls.append(attempt)
        self.payloads.append(payload)
        play = self.script.popleft() if self.script else Done(id=f"provider-{len(self.calls)}")
        if isinstance(play, BaseException):
            raise play
        if callable(play):
            return await play(payload, attempt)  # type: ignore[return-value]
        return play

    @property
    def keys(self) -> list[str]:
        return [attempt.key for attempt in self.calls]


class Gate:
    """A call that is under way until the test opens the gate."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self._outcome = outcome or Done(id="through the gate")

    async def __call__(self, _payload: object, _attempt: Attempt) -> Outcome:
        self.reached.set()
        await self.opened.wait()
        return self._outcome


class Deaf(Gate):
    """A call that goes on although it was cut off: a frozen process, or an executor that swallows
    its cancellation.
    """

    async def __call__(self, _payload: object, _attempt: Attempt) -> Outcome:
        self.reached.set()
        while not self.opened.is_set():
            with suppress(asyncio.CancelledError):
                await self.opened.wait()
        return self._outcome


def note_flow(
    provider: Provider,
    *,
    name: str = FLOW,
    on_unknown: UnknownPolicy = "resend",
    retry: RetryPolicy | None = None,
    reconcile: Provider | None = None,
    key_protects_seconds: float | None = None,
    **options: Any,
) -> Flow:
    rules = Rules(retry or RetryPolicy(), on_unknown, key_protects_seconds)
    asks = None if reconcile is None else reconcile.execute
    return Flow(name, Note, provider.execute, rules, reconcile=asks, **options)


def engine_of(provider: Provider, url: str = URL, **options: Any) -> Engine:
    return Engine(url, flows=[note_flow(provider, **options)])


def take_the_long_way(engine: Engine) -> None:
    """Jobs are put first and taken after that, as it is where the projector is another process than
    the worker.
    """
    engine.pipeline.projector.eager_dispatch = None


async def pass_time(gesta: Harness, seconds: float, step_seconds: float = 0.25) -> None:
    """Move the clock in small steps, so that everything that runs by the clock gets its turns on
    the way.
    """
    for _ in range(round(seconds / step_seconds)):
        gesta.advance(step_seconds)
        await let_run(gesta)


async def let_run(gesta: Harness) -> None:
    """Let everything run that is ready, without moving the clock."""
    await gesta._quiet()


async def die(engine: Engine, survivors: set[asyncio.Task[Any]] | None = None) -> None:
    """The process of this engine is gone: no drain, no release, no record.

    What it had started elsewhere stays as it is.
    """
    pipeline = engine.pipeline
    tasks = {
        task
        for task in asyncio.all_tasks() - (survivors or set())
        if task.get_name().startswith("gesta-") and not task.done()
    }
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    pipeline.components.tasks.clear()
    engine._pipeline = None


async def result(request: Request) -> Outcome | None:
    """What the request has come to, without waiting for it."""
    return outcome_of((await request.view()).state)


def events_of(engine: Engine, request_id: str, *, flow: str = FLOW) -> Awaitable[list[Recorded]]:
    """The stored events of a request of the flow of these tests."""
    return engine.pipeline.environment.stores.events.read(
        [(f"{flow}.request-default-{request_id}", 0)]
    )


async def types_of(engine: Engine, request_id: str) -> list[str]:
    """The names of a request's events, without flow and version."""
    return [event.type.split(".")[-2] for event in await events_of(engine, request_id)]


async def append_raw(
    engine: Engine,
    request_id: str,
    expected: int,
    type_name: str,
    data: bytes,
    meta: bytes | None = None,
    *,
    flow: str = FLOW,
    tenant: str = "default",
) -> None:
    """Write an event as another process, another version of the code, or a bug would have written
    it.
    """
    names = {
        "tenant": tenant,
        "flow": flow,
        "requestId": request_id,
        "correlationId": "c",
        "causationId": "c",
    }
    meta = (
        msgspec.json.encode(names | {"occurredAt": engine.pipeline.runtime.now_ms()})
        if meta is None
        else meta
    )
    event = NewEvent(
        event_id(engine.pipeline.process.ids.new_bytes(), 0), f"{flow}.{type_name}", data, meta
    )
    (verdict,) = await engine.pipeline.environment.stores.events.append(
        [Append(request_stream(flow, tenant, request_id), expected, (event,))]
    )
    assert isinstance(verdict, Appended), verdict


async def all_events(engine: Engine) -> list[Recorded]:
    return await engine.pipeline.environment.stores.events.follow(0, 10_000)


def fields(stored: bytes) -> dict[str, Any]:
    return msgspec.json.decode(stored, type=dict[str, Any])


#: What is recorded of an attempt beside its outcome.
ATTEMPT_FIELDS = frozenset({"startedAt", "worker", "host", "httpStatus"})


def outcome_fields(stored: bytes) -> dict[str, Any]:
    """An event without what is recorded of the attempt beside its outcome."""
    return {name: value for name, value in fields(stored).items() if name not in ATTEMPT_FIELDS}


class Faulty:
    """A port whose calls go wrong where a test says so; everything else goes through."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self.calls: Counter[str] = Counter()
        self._faults: defaultdict[str, deque[tuple[BaseException, bool]]] = defaultdict(deque)
        self._hooks: dict[str, Callable[..., Awaitable[Any]]] = {}
        #: Every call fails, the hints too, until it is healed.
        self.is_down = False

    def fail(
        self,
        verb: str,
        error: BaseException | None = None,
        *,
        times: int = 1,
        answer_lost: bool = False,
    ) -> None:
        """Let the next calls raise; with `answer_lost` after the work was done."""
        self._faults[verb].extend(
            [(error or StoreError("the store is out of reach"), answer_lost)] * times
        )

    def heal(self) -> None:
        self._faults.clear()
        self._hooks.clear()
        self.is_down = False

    def replace(self, verb: str, hook: Callable[..., Awaitable[Any]]) -> None:
        """Call `hook(original, …)` instead."""
        self._hooks[verb] = hook

    def __getattr__(self, verb: str) -> Any:
        original = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(original):
            return original

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb] += 1
            if self.is_down:
                raise StoreError("the store is out of reach")
            error, answer_lost = (
                self._faults[verb].popleft() if self._faults[verb] else (None, False)
            )
            if error is not None and not answer_lost:
                raise error
            hook = self._hooks.get(verb)
            answer = await (
                original(*args, **kwargs) if hook is None else hook(original, *args, **kwargs)
            )
            if error is not None:
                raise error
            return answer

        return call


class Ports:
    """The ports of the engine that was opened last, each of which can be made to fail."""

    events: Faulty
    read_model: Faulty
    queue: Faulty
    vault: Faulty
    transactions: Faulty

    def all(self) -> Sequence[Faulty]:
        return self.events, self.read_model, self.queue, self.vault, self.transactions

    def go_down(self) -> None:
        for port in self.all():
            port.is_down = True

    def come_back(self) -> None:
        for port in self.all():
            port.heal()


class Slow(Faulty):
    """A port whose calls take a turn before and after their effect, and fail when their number has
    come up.
    """

    def __init__(self, port: Any, calls: Calls) -> None:
        super().__init__(port)
        self._all = calls

    def __getattr__(self, verb: str) -> Any:
        call = super().__getattr__(verb)
        if verb in {"ready", "changed"}:
            return call

        async def slow(*args: Any, **kwargs: Any) -> Any:
            is_next = self._all.count()
            await asyncio.sleep(0)
            if is_next and not self._all.answer_lost:
                raise StoreError(f"the store is out of reach for {verb}")
            answer = await call(*args, **kwargs)
            await asyncio.sleep(0)
            if is_next:
                raise StoreError(f"the answer to {verb} was lost")
            return answer

        return slow


class Calls:
    """All calls to all ports, counted; one of them fails."""

    def __init__(self) -> None:
        self.made, self.failing, self.answer_lost = 0, 0, False

    def count(self) -> bool:
        self.made += 1
        return self.made == self.failing
