"""A request lived through command by command, in memory: decide, then evolve.

The words of the domain tests.
"""

from __future__ import annotations

from msgspec.structs import replace

from gesta.domain.commands import (
    Command,
    CommandRefused,
    Create,
    Lose,
    Reconciled,
    RecordOutcome,
    Redrive,
    RetryNow,
    Rules,
)
from gesta.domain.events import Actor, Event, Meta
from gesta.domain.ids import idempotency_key
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Outcome, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State

decide, evolve = NOTIFICATION.decide, NOTIFICATION.evolve

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
TENANT = "acme"
FLOW = "notification.webhook"
#: When the story begins, epoch milliseconds.
T0 = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

RecordedEvent = tuple[Event, Meta]


def rules(
    on_unknown: UnknownPolicy = "manual",
    *,
    attempts: int = 3,
    elapsed_seconds: float | None = None,
    key_protects_seconds: float | None = None,
) -> Rules:
    """Retries after exactly 10 s, so that a story has round numbers."""
    retry = RetryPolicy(
        attempts=attempts,
        elapsed_seconds=elapsed_seconds,
        schedule_seconds=(10.0,),
        schedule_jitter=0.0,
    )
    return Rules(retry, on_unknown, key_protects_seconds)


def meta(at: int) -> Meta:
    return Meta(TENANT, FLOW, ID, at, "correlation-1", "cause-1", "test", Actor("tester"))


class Story:
    """What has happened to one request so far."""

    def __init__(
        self,
        given_rules: Rules | None = None,
        *,
        deliver_at: int | None = None,
        ttl_ms: int | None = None,
        at: int = T0,
    ) -> None:
        self.rules = given_rules or rules()
        self.now = at
        self.history: list[RecordedEvent] = []
        self._state: State | None = None
        self.tell(
            Create(
                ID, FLOW, b'{"url":"u"}', at, key="order-7", deliver_at=deliver_at, ttl_ms=ttl_ms
            )
        )

    @property
    def state(self) -> State:
        assert self._state is not None
        return self._state

    @property
    def key(self) -> str:
        """What the provider would be given now."""
        return idempotency_key(
            self.state.tenant, self.state.id, self.state.operation, self.state.intent
        )

    def tell(self, command: Command) -> list[Event]:
        """Decide and fold; the events. A command that carries a time moves the clock there."""
        self.now = _time_of(command) or self.now
        events = decide(self._state, command, self.rules)
        for event in events:
            recorded = (event, meta(self.now))
            self.history.append(recorded)
            self._state = evolve(self._state, *recorded)
        return events

    def ends(self, outcome: Outcome, after_ms: int = 0, attempt: int | None = None) -> list[Event]:
        """The running attempt, or the one of that number, comes to its end."""
        number = self.state.attempts + 1 if attempt is None else attempt
        return self.tell(
            RecordOutcome(outcome, number, self.now + after_ms, intent=self.state.intent)
        )

    def refusal(self, command: Command) -> str:
        """The code with which a command is refused; empty when it is not."""
        before, count = self.state, len(self.history)
        try:
            decide(self.state, command, self.rules)
        except CommandRefused as refused:
            assert (self.state, len(self.history)) == (before, count)
            return refused.code
        return ""

    def copy(self) -> Story:
        """Another story that begins with the same events."""
        twin = Story(self.rules)
        twin.now, twin.history, twin._state = self.now, list(self.history), replace(self.state)
        return twin


def _time_of(command: Command) -> int | None:
    if isinstance(command, Create | RecordOutcome | Lose | Reconciled | RetryNow | Redrive):
        return command.at
    return getattr(command, "at", None)
