"""Random lives: rules, and moves that become commands only when the state is known, so that deep
states are reached often.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Literal, TypeVar

import msgspec
from hypothesis import strategies as st

from gesta.domain import commands as c
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State
from tests.domain.story import DAY, HOUR, MINUTE, SECOND

T = TypeVar("T")
Result = Literal["executed", "not_executed", "rejected"]
Kind = Literal[
    "record",
    "start",
    "postpone",
    "hold",
    "lose",
    "reconciled",
    "resolve",
    "cancel",
    "retry_now",
    "redrive",
    "expire",
    "purge",
    "withdraw",
    "report",
]


class Move(msgspec.Struct, frozen=True):
    """One step of a random life; `flag` is whatever boolean the command has."""

    kind: Kind
    wait_ms: int
    outcome: Outcome
    #: Which attempt reports: 1 is the one that may run now, 0 and below are stale, 2 skipped one.
    offset: int
    chance: float
    flag: bool
    result: Result
    ttl_ms: int | None
    #: An outcome of the intent before this one.
    old_intent: bool

    def command(self, state: State, now: int) -> c.Command:
        match self.kind:
            case "record":
                intent = state.intent - 1 if self.old_intent and state.intent > 1 else state.intent
                number = max(0, state.attempts + self.offset)
                return c.RecordOutcome(
                    self.outcome, number, now, self.chance, intent, called=not self.flag
                )
            case "start":
                return c.Start(f"{state.tenant}:{state.id}:{state.operation}:{state.intent}")
            case "postpone":
                return c.Postpone()
            case "hold":
                return c.HoldRequest("everything") if self.flag else c.ReleaseRequest()
            case "lose":
                return c.Lose(now, chance=self.chance)
            case "reconciled":
                return c.Reconciled(self.outcome, now, self.chance)
            case "resolve":
                return c.Resolve(self.result, "ann", "seen in the provider's log")
            case "cancel":
                return c.Cancel(active=self.flag)
            case "retry_now":
                return c.RetryNow(now)
            case "redrive":
                return c.Redrive(now, self.ttl_ms, again=self.flag)
            case "expire":
                return c.Expire(now)
            case "withdraw":
                return c.Withdraw("duplicate" if self.flag else "conflict", "request 1")
            case "report":
                return c.RecordReceipt(
                    _REPORTS[self.result],
                    f"report-{self.offset}",
                    "p-1",
                    "mailbox_full",
                    permanent=self.old_intent,
                )
            case _:
                return c.Purge()


class Life(msgspec.Struct, frozen=True):
    """Everything that decides how a random story goes."""

    rules: c.Rules
    steps: tuple[Move, ...]
    deliver_in_ms: int | None = None
    ttl_ms: int | None = None


#: What the provider reports later, drawn with the same word as what a person says.
_REPORTS: dict[Result, Literal["delivered", "bounced", "complained"]] = {
    "executed": "delivered",
    "not_executed": "bounced",
    "rejected": "complained",
}
# Each field's values; a value that stands there twice comes twice as often.
_AFTERS = (0.0, 0.0, 0.0, 0.0004, 1.0, 30.0004, 1200.0, 90_000.0, 1e30, float("inf"))
_OUTCOMES = (
    *([Done("provider-1")] * 6),
    *([Rejected("bad_address")] * 4),
    *(Retry("throttled", after_seconds=after) for after in _AFTERS),
    *(Unknown("no_answer", after_seconds=after) for after in _AFTERS),
)
_TTLS = (None, None, None, 1, 30 * SECOND, HOUR, 2 * DAY)
_MOVE: dict[str, tuple[object, ...]] = {
    "kind": (
        *(["record"] * 4),
        "start",
        "start",
        "postpone",
        "hold",
        "lose",
        "reconciled",
        "resolve",
        "cancel",
        "retry_now",
        "redrive",
        "redrive",
        "expire",
        "purge",
        "withdraw",
        "report",
    ),
    "wait_ms": (0, 0, 0, 1, SECOND, 10 * SECOND, MINUTE, 20 * MINUTE, HOUR, DAY),
    "outcome": _OUTCOMES,
    "offset": (1, 1, 1, 1, 0, -1, 2),
    "chance": (0.0, 0.25, 0.5, 0.999999),
    "flag": (False, True),
    "result": ("executed", "not_executed", "not_executed", "rejected"),
    "ttl_ms": _TTLS,
    "old_intent": (False, False, False, True),
}
_RETRY: dict[str, tuple[object, ...]] = {
    "attempts": (1, 2, 3, 5),
    "cap_seconds": (60.0, 4.0),
    "elapsed_seconds": (None, None, 60.0, 7200.0),
    "schedule_seconds": ((), (), (5.0, 300.0, 1800.0)),
}
_RULES: dict[str, tuple[object, ...]] = {
    "on_unknown": ("resend", "reconcile", "manual"),
    "key_protects_seconds": (None, None, 30.0, 23 * 3600.0),
}
_LIFE: dict[str, tuple[object, ...]] = {
    "deliver_in_ms": (None, None, 0, MINUTE, HOUR),
    "ttl_ms": _TTLS,
}


def chosen(
    kind: Callable[..., T], fields: dict[str, tuple[object, ...]], random: Random, **given: object
) -> T:
    """One of all that can be built from these values."""
    return kind(**{name: random.choice(values) for name, values in fields.items()}, **given)


def choices(
    kind: Callable[..., T], fields: dict[str, tuple[object, ...]], **given: Any
) -> st.SearchStrategy[T]:
    """All that can be built from these values, for Hypothesis to choose from and to shrink."""
    return st.builds(
        kind, **{name: st.sampled_from(values) for name, values in fields.items()}, **given
    )


def random_rules(random: Random) -> c.Rules:
    return chosen(c.Rules, _RULES, random, retry=chosen(RetryPolicy, _RETRY, random))


def random_life(random: Random) -> Life:
    steps = tuple(chosen(Move, _MOVE, random) for _ in range(random.randint(1, 12)))
    return chosen(Life, _LIFE, random, rules=random_rules(random), steps=steps)


any_rules = choices(c.Rules, _RULES, retry=choices(RetryPolicy, _RETRY))
lives = choices(
    Life,
    _LIFE,
    rules=any_rules,
    steps=st.lists(choices(Move, _MOVE), min_size=1, max_size=10).map(tuple),
)
