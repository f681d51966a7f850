"""One request between a provider that counts its effects and workers that die.

Here the truth is known, so it can be compared.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

import msgspec
from hypothesis import strategies as st

from gesta.domain.commands import (
    Cancel,
    CommandRefused,
    Expire,
    Lose,
    Reconciled,
    RecordOutcome,
    Redrive,
    Resolve,
    RetryNow,
    Rules,
    Start,
)
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from tests.domain.moves import any_rules, choices, chosen, random_rules
from tests.domain.story import DAY, HOUR, MINUTE, SECOND, Story

Action = Literal[
    "begin", "end", "die", "report", "ask", "cancel", "expire", "resolve", "retry_now", "redrive"
]
Fate = Literal["executed", "throttled", "refused", "answer_lost", "question_lost"]

_ACTIONS = (
    *(["begin"] * 5),
    *(["end"] * 4),
    "die",
    "report",
    "ask",
    "cancel",
    "expire",
    "resolve",
    "retry_now",
    "redrive",
)
_FATES = (
    "executed",
    "executed",
    "throttled",
    "refused",
    "answer_lost",
    "answer_lost",
    "question_lost",
)


class Turn(msgspec.Struct, frozen=True):
    """Something happens."""

    action: Action
    fate: Fate
    wait_ms: int
    flag: bool


class Plan(msgspec.Struct, frozen=True):
    """Everything that decides how a world goes. `forces`: people use --again."""

    rules: Rules
    turns: tuple[Turn, ...]
    journals: bool
    forces: bool
    ttl_ms: int | None


_TURN: dict[str, tuple[object, ...]] = {
    "action": _ACTIONS,
    "fate": _FATES,
    "wait_ms": (0, 0, SECOND, 10 * SECOND, MINUTE, HOUR, DAY),
    "flag": (False, True),
}
_PLAN: dict[str, tuple[object, ...]] = {
    "journals": (False, True),
    "forces": (False, True),
    "ttl_ms": (None, None, 30 * SECOND, 2 * HOUR),
}


def random_plan(random: Random) -> Plan:
    turns = tuple(chosen(Turn, _TURN, random) for _ in range(random.randint(2, 16)))
    return chosen(Plan, _PLAN, random, rules=random_rules(random), turns=turns)


plans = choices(
    Plan,
    _PLAN,
    rules=any_rules,
    turns=st.lists(choices(Turn, _TURN), min_size=2, max_size=12).map(tuple),
)


class Call(msgspec.Struct, frozen=True):
    """An attempt whose outcome is not recorded yet."""

    attempt: int
    intent: int
    outcome: Outcome


class World:
    """`effects` is the truth.

    A worker behaves as design.md section 3 says; everything else may go wrong.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.story = Story(plan.rules, ttl_ms=plan.ttl_ms)
        self.effects: Counter[str] = Counter()
        self.first_seen: dict[str, int] = {}
        #: Under a lease, by the job's dispatch version.
        self.running: dict[int, Call] = {}
        #: Held by workers that lost their lease: they may still report, much later.
        self.late: list[Call] = []
        #: The job was taken and that take has no recorded end.
        self.is_possibly_executed = False
        self.was_forced = False

    @property
    def busy(self) -> bool:
        return self.story.state.dispatch_version in self.running

    def turn(self, turn: Turn) -> None:
        self.story.now += turn.wait_ms
        dispatched = self.story.state.dispatch_version
        getattr(self, turn.action)(turn)
        if self.story.state.dispatch_version != dispatched:
            # A new opening is a new job.
            self.is_possibly_executed = False

    def begin(self, turn: Turn) -> None:
        """Take the job, guard, call the provider."""
        story = self.story
        if self.busy or not self._is_due("execute"):
            return
        if self.is_possibly_executed or story.state.started is not None:
            self.is_possibly_executed = False
            story.tell(Lose(story.now))
        if not self._is_due("execute") or story.tell(Expire(story.now)):
            return
        if story.state.cancel_requested:
            story.tell(Cancel())
            return
        attempt = story.state.attempts + 1
        if self.plan.journals and not story.tell(Start(story.key)):
            return
        outcome = self._call(story.key, turn.fate)
        self.running[story.state.dispatch_version] = Call(attempt, story.state.intent, outcome)

    def end(self, turn: Turn) -> None:
        """The oldest running attempt records its outcome."""
        if self.running:
            self._record(self.running.pop(min(self.running)))

    def die(self, turn: Turn) -> None:
        """The process is killed, or frozen until its lease has run out (`flag`): then it reports
        late.
        """
        if self.running:
            version = max(self.running)
            call = self.running.pop(version)
            self.is_possibly_executed = (
                self.is_possibly_executed or version == self.story.state.dispatch_version
            )
            if turn.flag:
                self.late.append(call)

    def report(self, turn: Turn) -> None:
        if self.late:
            self._record(self.late.pop(0))

    def ask(self, turn: Turn) -> None:
        """The sweep has the provider asked; `flag`: it cannot tell."""
        if self._is_due("reconcile"):
            answer: Outcome = Done("found") if self.effects[self.story.key] else Retry("no_trace")
            self.story.tell(
                Reconciled(Unknown("cannot_tell") if turn.flag else answer, self.story.now)
            )

    def cancel(self, turn: Turn) -> None:
        self._person(Cancel(active=self.busy or self.is_possibly_executed))

    def expire(self, turn: Turn) -> None:
        sweep_at = self.story.state.sweep_at
        if (
            sweep_at is not None
            and sweep_at <= self.story.now
            and not self.busy
            and not self.is_possibly_executed
        ):
            self.story.tell(Expire(self.story.now))

    def resolve(self, turn: Turn) -> None:
        """A person has looked it up, and is right."""
        executed = bool(self.effects[self.story.key])
        if executed or not self.running:
            self._person(Resolve("executed" if executed else "not_executed", "ann", "looked it up"))

    def retry_now(self, turn: Turn) -> None:
        self._person(RetryNow(self.story.now))

    def redrive(self, turn: Turn) -> None:
        again = turn.flag and self.plan.forces
        self.was_forced = self.was_forced or again
        self._person(Redrive(self.story.now, self.plan.ttl_ms, again=again))

    def settle(self) -> None:
        """All is well again: all report, nothing more goes wrong. Ends over or manual."""
        calm = Turn("begin", "executed", 0, flag=False)
        while self.running:
            self.end(calm)
        while self.late:
            self.report(calm)
        for _ in range(20):
            state = self.story.state
            if state.wants is None:
                return
            self.story.now = max(self.story.now, state.due_at or 0)
            self.turn(calm if state.wants == "execute" else Turn("ask", "executed", 0, flag=False))
            self.end(calm)
        raise AssertionError(f"never comes to rest: {self.story.state}")

    def check(self) -> None:
        state, key = self.story.state, self.story.key
        assert all(count <= 1 for count in self.effects.values()), (
            f"two effects under one key: {self.effects}"
        )
        assert self.was_forced or self.effects.total() <= 1, (
            f"two effects without force: {self.effects}"
        )
        assert state.status != "sent" or self.effects.total(), "sent, and nothing happened"
        if state.status in ("expired", "cancelled") or (
            state.status == "failed" and not state.in_doubt
        ):
            assert not self.effects[key], f"{state.status} as not executed, and yet it happened"
        known = (
            state.status == "sent"
            or state.in_doubt
            or state.started is not None
            or self.is_possibly_executed
            or self.running
        )
        assert known or not self.effects[key], "it happened, and no record will ever show it"

    def _is_due(self, kind: str) -> bool:
        state = self.story.state
        return state.wants == kind and (state.due_at or 0) <= self.story.now

    def _call(self, key: str, fate: Fate) -> Outcome:
        if fate == "throttled":
            return Retry("throttled")
        if fate == "refused":
            return Rejected("unauthorized")
        if fate == "question_lost":
            return Unknown("no_answer")
        self._execute(key)
        return Done("p-1") if fate == "executed" else Unknown("no_answer")

    def _execute(self, key: str) -> None:
        """A provider with a memory for keys does it once, until it forgets; one without does it
        each time.
        """
        rules, now = self.plan.rules, self.story.now
        window = rules.key_protects_seconds
        seen = self.first_seen.get(key)
        remembers = seen is not None and (window is None or now <= seen + window * 1000)
        if rules.on_unknown == "resend" and remembers:
            return
        self.first_seen[key] = now
        self.effects[key] += 1

    def _record(self, call: Call) -> None:
        self.story.tell(
            RecordOutcome(call.outcome, call.attempt, self.story.now, intent=call.intent)
        )
        done = isinstance(call.outcome, Done)
        assert not done or self.story.state.status == "sent", (
            "a success was reported and is not on record"
        )

    def _person(self, command: Cancel | Resolve | RetryNow | Redrive) -> None:
        try:
            self.story.tell(command)
        except CommandRefused:
            return


def live_through(plan: Plan) -> World:
    """Every turn, then calm; the truth is compared after each."""
    world = World(plan)
    for turn in plan.turns:
        world.turn(turn)
        world.check()
    world.settle()
    world.check()
    return world
