"""The providers of the simulation, one for each way a flow can deal with an unknown outcome.

What they have done is the truth that everything is measured by.

A message that has left reaches the provider whatever becomes of its sender, within LANDING_SECONDS:
less than `ask_after_seconds`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from gesta import Attempt, Flow, Payload, Personal
from gesta.domain.commands import Rules
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.worker.lease import Lease
from tests.simulation.loop import OWNER
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

LANDING_SECONDS = 2.0
#: What a flow says of its provider's memory, and how much longer that really is: for clocks, frozen
#: processes and the way there.
KEY_PROTECTS_SECONDS = 90.0
KEY_MARGIN_SECONDS = 60.0

RETRY = RetryPolicy(attempts=4, base_seconds=1.0, cap_seconds=6.0)
#: Weights: most of what goes wrong is an answer that is missing.
FATES = (
    "throttled",
    "rejected",
    "lost",
    "lost",
    "not_reached",
    "error_500",
    "slow",
    "hangs",
    "deaf",
    "raises",
    "raises",
)
#: What every flow uses, in every tenant.
CREDENTIAL = "sim.account/main"


class Deduping(Payload, frozen=True):
    text: str


class Forgetting(Payload, frozen=True):
    text: str


class Asked(Payload, frozen=True):
    text: str


class Journalled(Payload, frozen=True):
    text: str


class Left(Payload, frozen=True):
    text: str


class Careless(Payload, frozen=True):
    text: str


class Encrypted(Payload, frozen=True):
    """Tells something about a person, whose name is the end of the text."""

    text: str
    to: Personal[str]


PAYLOADS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Deduping, Forgetting, Asked, Journalled, Left, Careless, Encrypted)
}
#: How many calls of a flow a process may make at once.
SLOTS = 3
#: Providers that do the same key once.
DEDUPING = frozenset({"sim.deduping", "sim.forgetting", "sim.encrypted"})
#: A flow that resends although its provider does it again: the residual that G3 names.
CARELESS = "sim.careless"


@dataclass(eq=False)
class Call:
    """One call of an executor."""

    process: Process
    attempt: Attempt
    token: str
    began: float
    lease: Lease
    #: When its message left, which may be long after it began: its process can stand still in
    #: between.
    left: float = 0.0
    has_effect: bool = False
    #: The executor got its answer and returned it to a process that was alive.
    is_answered: bool = False
    #: Cut off by a deadline or a lost lease. One that is deaf to it goes on, and may hear its
    #: answer later.
    is_cut: bool = False
    is_over: bool = False
    ended: float = 0.0

    @property
    def was_in_doubt(self) -> bool:
        """Its process died, its lease was lost or its answer is missing."""
        return (
            self.is_cut
            or not self.is_answered
            or self.process.is_dead
            or self.lease.token != self.token
        )

    def may_still_happen(self, now: float) -> bool:
        """A call runs, or what a dead one sent is on its way."""
        return now < max(self.began, self.left) + 2 * LANDING_SECONDS or not (
            self.is_over or self.process.is_dead
        )


class Provider:
    def __init__(self, world: World) -> None:
        self._world = world
        self.effects: Counter[str] = Counter()
        #: Key → when it was first executed.
        self._seen: dict[str, float] = {}
        self.calls: defaultdict[str, list[Call]] = defaultdict(list)
        #: Messages that have left and not landed.
        self.on_the_way = 0
        self.flows = [self._flow(kind) for kind in PAYLOADS.values()]

    @property
    def is_busy(self) -> bool:
        return any(
            not call.is_over and not call.process.is_dead
            for calls in self.calls.values()
            for call in calls
        )

    def _flow(self, kind: type[Payload]) -> Flow:
        name = f"sim.{kind.__name__.lower()}"
        policy = {"asked": "reconcile", "journalled": "reconcile", "left": "manual"}.get(
            kind.__name__.lower(), "resend"
        )
        protects = KEY_PROTECTS_SECONDS if kind is Forgetting else None
        rules = Rules(RETRY, cast("Any", policy), protects)
        reconcile = self._ask if policy == "reconcile" else None
        return Flow(
            name,
            kind,
            self._execute,
            rules,
            reconcile,
            timeout_seconds=8.0,
            concurrency=SLOTS,
            journal=kind is Journalled,
            # Requests of a flow without one are accepted in fewer steps.
            credential=None if kind is Careless else lambda _: CREDENTIAL,
        )

    async def _execute(self, payload: Payload, attempt: Attempt) -> Outcome:
        world, process = self._world, cast("Process", OWNER.get())
        lease = process.pipeline.pool.lease
        call = Call(process, attempt, lease.token, world.loop.now, lease)
        world.checks.at_call(call)
        if isinstance(payload, Encrypted):
            world.checks.opened(payload.to, payload.text)
        self.calls[attempt.request_id].append(call)
        try:
            if attempt.flow not in ("sim.asked", "sim.journalled"):
                # Something is looked up first. A flow that asks the provider instead of trusting a
                # key must not dawdle here.
                await self._on_the_way(process)
            self._maybe_spare(attempt)
            outcome = await self._exchange(call, self._fate())
            call.is_answered = isinstance(outcome, Done)
            return outcome
        finally:
            call.is_over, call.ended = True, world.loop.now

    async def _ask(self, _payload: Payload, attempt: Attempt) -> Outcome:
        world, process = self._world, cast("Process", OWNER.get())
        await self._on_the_way(process)
        self._maybe_spare(attempt)
        if world.chance(world.rates.provider / 2):
            world.hit("question_lost")
            return Unknown("cannot_tell")
        executed = self.effects[attempt.key] > 0
        world.note(
            process,
            f"asked about {world.short(attempt.request_id)}:"
            f" {'executed' if executed else 'no trace'}",
        )
        await self._on_the_way(process)
        world.hit("asked_executed" if executed else "asked_no_trace")
        return Done(attempt.key) if executed else Retry("no_trace")

    def _maybe_spare(self, attempt: Attempt) -> None:
        """Some calls are none after all, and spend no attempt: nothing has left."""
        world = self._world
        if not world.chance(world.rates.deferred):
            return
        if world.chance(0.5) or attempt.flow == CARELESS:
            world.hit("provider_postponed")
            raise Postponed(world.random.random() * 5)
        world.hit("provider_refused")
        world.later(world.random.random() * 4, world.users.fix_credentials)
        raise CredentialRefused(CREDENTIAL, "revoked")

    def _fate(self) -> str:
        world = self._world
        return world.random.choice(FATES) if world.chance(world.rates.provider) else "done"

    async def _exchange(self, call: Call, fate: str) -> Outcome:
        """Send, and wait for what comes back.

        The message travels on its own: the death of its sender does not stop it.
        """
        world, loop = self._world, self._world.loop
        world.note(
            call.process,
            f"calls {world.short(call.attempt.request_id)} #{call.attempt.number}: {fate}",
        )
        world.hit(f"provider_{fate}")
        answer: asyncio.Future[Outcome] = loop.create_future()
        call.left = loop.now
        # A call that raises does not wait for the landing, and the question follows soon: a message
        # that is still on its way then is the residual of G3.
        is_slow = world.chance(0.1) and fate != "raises"
        way = world.random.random() * (LANDING_SECONDS if is_slow else 0.02)
        self.on_the_way += 1
        loop.call_later(way, self._land, call, fate, answer, context=Context())
        await self._on_the_way(call.process)
        if fate == "raises":
            raise RuntimeError("a bug in the executor, after the message has left")
        while not answer.done():
            try:
                await asyncio.shield(answer)
            except asyncio.CancelledError:
                call.is_cut = True
                if fate != "deaf":
                    raise
        await self._on_the_way(call.process)
        return answer.result()

    def _land(self, call: Call, fate: str, answer: asyncio.Future[Outcome]) -> None:
        world, attempt = self._world, call.attempt
        self.on_the_way -= 1
        outcome, later = self._receive(call, fate)
        if fate == "hangs":
            return
        if fate == "slow":
            later = 1 + world.random.random() * 9
        elif fate == "deaf":
            later = 12 + world.random.random() * 10
        if isinstance(outcome, Done):
            world.note(
                None,
                f"the provider has done {world.short(attempt.request_id)} (effects:"
                f" {self.effects[attempt.key]})",
            )
        world.loop.call_later(later, _answer, answer, outcome, context=Context())

    def _receive(self, call: Call, fate: str) -> tuple[Outcome, float]:
        """What the provider does and says."""
        key, later = call.attempt.key, self._world.random.random() * 0.05
        if fate == "throttled":
            return (
                Retry("throttled", after_seconds=self._world.random.choice([0.0, 2.0, 10.0])),
                later,
            )
        if fate == "not_reached":
            return Unknown("reset"), later
        done_before = self._remembers(call.attempt)
        if fate == "rejected" and not done_before:
            return Rejected("unauthorized"), later
        if fate == "error_500" and self._world.chance(0.5):
            return Unknown("http_500"), later
        if not done_before:
            self._seen[key] = self._world.loop.now
            self.effects[key] += 1
            call.has_effect = True
        return (Unknown("reset") if fate in ("lost", "error_500") else Done(key)), later

    def _remembers(self, attempt: Attempt) -> bool:
        seen = self._seen.get(attempt.key)
        if seen is None or attempt.flow not in DEDUPING:
            return False
        margin = KEY_MARGIN_SECONDS + 2 * self._world.options.skew_ms / 1000
        if (
            attempt.flow == "sim.forgetting"
            and self._world.loop.now > seen + KEY_PROTECTS_SECONDS + margin
        ):
            self._world.hit("key_forgotten_by_provider")
            return False
        self._world.hit("deduped")
        return True

    async def _on_the_way(self, process: Process) -> None:
        world = self._world
        if world.chance(world.rates.crash_at_provider):
            world.hit("crash_in_call")
            world.crash(process, "in_call")
        elif world.chance(world.rates.freeze * 10):
            world.hit("freeze_in_call")
            world.freeze(process)
        await world.loop.delay(world.random.random() * 0.03)


def _answer(answer: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answer.done():
        answer.set_result(outcome)
