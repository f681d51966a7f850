"""What every channel promises, whatever its provider does.

One test per promise, held against a channel by its harness.

    from gesta.testing.contracts.flow import FlowContract

    class TestChat(FlowContract):
        @pytest.fixture
        def channel(self):
            return ChatHarness()

        @pytest.fixture
        def store_url(self, tmp_path):
            return f"sqlite:///{tmp_path / 'gesta.db'}"

The channel runs on a real store and a real clock against the sandbox's doubles, with its waits
shortened (`quick`).
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec
import pytest

from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State
from gesta.engine.engine import Engine
from gesta.engine.environment import Environment, Wiring, wire_really
from gesta.engine.request import Request
from gesta.flows.flow import Flow, Payload
from gesta.flows.personal_fields import plan_of
from gesta.ports.job_queue import Job
from gesta.runtime.clock import sleep
from gesta.runtime.settings import Settings
from gesta.sandbox import Sandbox, SandboxTransport

#: What goes wrong with the next call. permanent: the provider will never take it. throttled: come
#: back in THROTTLED_SECONDS.
#: dropped: it acts, and the connection breaks. slow: it acts, and answers later than the flow's
#: time limit.
Trouble = Literal["permanent", "throttled", "dropped", "slow"]

THROTTLED_SECONDS = 1
#: What a harness gives its flow as time limit, and how late a slow answer comes.
TIMEOUT_SECONDS, SLOW_SECONDS = 0.3, 3.0
#: Nothing here takes this long; what does will never happen.
PATIENCE_SECONDS = 20.0
_LOOK_SECONDS = 0.01
_MASTER_KEY = base64.b64encode(b"k" * 32).decode()


class FlowHarness(Protocol):
    """One channel under the contract."""

    #: `kind/code` of the config that the payloads are executed with.
    credential: str

    def flow(self) -> Flow:
        """The channel, with TIMEOUT_SECONDS as the time limit of a call."""

    def payload(self, number: int) -> Payload: ...

    def subject(self, number: int) -> str | None:
        """Whom a payload is about; None: the channel's payloads carry nothing personal, and their
        type says so.
        """

    async def set_up(self, engine: Engine, sandbox: Sandbox) -> None:
        """Store the config that the payloads need."""

    def arm(self, sandbox: Sandbox, trouble: Trouble) -> None:
        """Let the next call go wrong."""

    def revoke(self, sandbox: Sandbox) -> None:
        """Let the provider refuse the credential from now on."""

    async def renew(self, engine: Engine, sandbox: Sandbox) -> None:
        """Put the credential anew, one that the provider accepts."""

    def calls(self, sandbox: Sandbox) -> int:
        """How often the provider was called, whatever came of it."""

    def effects(self, sandbox: Sandbox) -> list[int]:
        """The number of the payload for every effect that the world has seen, in order."""

    def environment(self, environment: Environment, sandbox: Sandbox) -> Environment:
        """Doubles of whatever else the channel reaches the world by; HTTP goes to the sandbox
        already.
        """


def quick(flow: Flow) -> Flow:
    """The same channel with waits that a test can wait for; what it does after an unknown outcome
    stays.
    """
    soon = RetryPolicy(attempts=5, base_seconds=0.05, cap_seconds=0.2)
    asking = msgspec.structs.replace(flow.rules.asking, base_seconds=0.05, cap_seconds=0.2)
    rules = msgspec.structs.replace(flow.rules, retry=soon, ask_after_seconds=0.05, asking=asking)
    return replace(flow, rules=rules)


@dataclass
class Stage:
    """A running engine with the channel, its world, and what became of requests."""

    channel: FlowHarness
    sandbox: Sandbox
    engine: Engine

    async def submit(self, number: int = 1) -> Request:
        return await self.engine.submit(self.channel.payload(number))

    async def state(self, request: Request) -> State:
        return (await request.view()).state

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        runtime = self.engine.pipeline.runtime
        end = runtime.monotonic() + PATIENCE_SECONDS
        while not await is_so():
            assert runtime.monotonic() < end, f"it never came to this: {what}"
            await sleep(runtime, _LOOK_SECONDS)

    async def ended(self, request: Request) -> State:
        async def has_ended() -> bool:
            return (await self.state(request)).is_terminal

        await self.until(has_ended, "the request has ended")
        return await self.state(request)

    async def called(self, times: int) -> None:
        """Wait until the provider was called so often and nothing is under way."""

        async def is_so() -> bool:
            return self.calls >= times and self.engine.pipeline.pool.in_flight == 0

        await self.until(is_so, f"{times} calls, and no slot taken")

    @property
    def calls(self) -> int:
        return self.channel.calls(self.sandbox)

    @property
    def effects(self) -> list[int]:
        return self.channel.effects(self.sandbox)


@asynccontextmanager
async def staged(channel: FlowHarness, store_url: str) -> AsyncIterator[Stage]:
    """The channel on this store, its config in place."""
    sandbox = Sandbox()

    async def wire(settings: Settings) -> Environment:
        environment = await wire_really(settings)
        await environment.transport.close()
        doubled = replace(
            environment, transport=SandboxTransport(environment.runtime, sandbox), drain_seconds=0
        )
        return channel.environment(doubled, sandbox)

    engine, before = (
        Engine(
            settings=Settings(url=store_url, master_key=_MASTER_KEY), flows=[quick(channel.flow())]
        ),
        Wiring.wire,
    )
    Wiring.wire = staticmethod(wire)
    try:
        await engine.start()
    finally:
        Wiring.wire = staticmethod(before)
    try:
        await channel.set_up(engine, sandbox)
        yield Stage(channel, sandbox, engine)
    finally:
        await engine.stop()


def succeeded(state: State) -> bool:
    """Whether the request ended as its flow's lifecycle ends one that succeeded."""
    return state.status in lifecycle_of(state.flow).success


class FlowContract:
    """The promises. A subclass called `Test…` with fixtures `channel` and `store_url` runs them.

    A test uses no other fixture than `stage`, so that it can also be called with a stage by hand.
    """

    @pytest.fixture
    async def stage(self, channel: FlowHarness, store_url: str) -> AsyncIterator[Stage]:
        async with staged(channel, store_url) as stage:
            yield stage

    async def test_what_is_asked_for_happens_once(self, stage: Stage) -> None:
        requests = [await stage.submit(number) for number in (1, 2)]
        states = [await stage.ended(request) for request in requests]
        assert [succeeded(state) for state in states] == [True, True]
        assert sorted(stage.effects) == [1, 2]
        assert len({state.provider_id for state in states}) == 2, "an effect has an id of its own"

    async def test_what_the_provider_will_never_take_is_a_dead_letter_after_one_call(
        self, stage: Stage
    ) -> None:
        stage.channel.arm(stage.sandbox, "permanent")
        state = await stage.ended(await stage.submit())
        assert (state.status, state.attempts, stage.calls, stage.effects) == ("failed", 1, 1, [])

        async def is_listed() -> bool:
            return [letter.id for letter in await stage.engine.admin.dead_letters()] == [state.id]

        await stage.until(is_listed, "it is among the dead letters")

    async def test_a_throttled_request_waits_without_a_slot(self, stage: Stage) -> None:
        stage.channel.arm(stage.sandbox, "throttled")
        before = stage.engine.pipeline.runtime.monotonic()
        request = await stage.submit()
        await stage.called(1)
        assert (await stage.state(request)).status == "queued"
        state = await stage.ended(request)
        assert (succeeded(state), stage.effects, stage.calls) == (True, [1], 2)
        assert stage.engine.pipeline.runtime.monotonic() - before >= THROTTLED_SECONDS

    async def test_a_connection_that_breaks_after_the_effect_makes_no_second_one(
        self, stage: Stage
    ) -> None:
        stage.channel.arm(stage.sandbox, "dropped")
        state = await stage.ended(await stage.submit())
        assert (succeeded(state), stage.effects) == (True, [1])

    async def test_an_answer_that_comes_too_late_makes_no_second_effect(self, stage: Stage) -> None:
        stage.channel.arm(stage.sandbox, "slow")
        state = await stage.ended(await stage.submit())
        assert (succeeded(state), stage.effects) == (True, [1])

    async def test_a_job_that_is_delivered_again_changes_nothing(self, stage: Stage) -> None:
        request = await stage.submit()
        state = await stage.ended(request)
        calls, stores = stage.calls, stage.engine.pipeline.environment.stores
        name = f"{state.id}-{state.dispatch_version}"
        await stores.queue.put(
            [Job(name, state.tenant, state.flow, state.id, state.dispatch_version)]
        )

        async def is_gone() -> bool:
            return not await stores.live_jobs([name])

        await stage.until(is_gone, "the job was taken and settled")
        assert (stage.calls, stage.effects, await stage.state(request)) == (calls, [1], state)

    async def test_a_refused_credential_holds_requests_until_it_changes(self, stage: Stage) -> None:
        stage.channel.revoke(stage.sandbox)
        requests = [await stage.submit(number) for number in range(5)]

        async def are_held() -> bool:
            return sum(held.count for held in await stage.engine.admin.held()) == len(requests)

        await stage.until(are_held, "every request is held")
        assert {
            (state.status, state.attempts) for state in [await stage.state(one) for one in requests]
        } == {("queued", 0)}
        [pause] = await stage.engine.admin.paused("default")
        assert pause.scope.credential == stage.channel.credential
        await stage.channel.renew(stage.engine, stage.sandbox)
        states = [await stage.ended(request) for request in requests]
        assert {(succeeded(state), state.attempts) for state in states} == {(True, 1)}
        assert sorted(stage.effects) == list(range(5))

    async def test_nothing_is_sent_to_a_person_who_was_erased(self, stage: Stage) -> None:
        flow, subject = stage.channel.flow(), stage.channel.subject(1)
        if subject is None:
            assert plan_of(flow.payload) is None, "a payload with personal fields is about a person"
            return
        await stage.engine.admin.pause(flow=flow.name)
        request = await stage.submit()
        assert await stage.engine.erase(subject) > 0
        await stage.engine.admin.resume(flow=flow.name)
        state = await stage.ended(request)
        assert (state.status, state.reason, stage.calls, stage.effects) == (
            "failed",
            "subject_erased",
            0,
            [],
        )
