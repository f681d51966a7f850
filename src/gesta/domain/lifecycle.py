"""The lifecycle of a request: its statuses, and the effect of each command and each event.

Every flow has one (`Flow.lifecycle`). The pipeline works with this value and knows no lifecycle by
name: a new one needs no change outside its own package.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import Command, CommandRefused, Create, Rules
from gesta.domain.money import Money
from gesta.domain.operation import Operation, Operations
from gesta.domain.operation.decide import DECISIONS, Decide
from gesta.domain.operation.decide import created as first_event
from gesta.domain.operation.evolve import FOLDS, Fold, created, resolved, succeeded
from gesta.domain.state import Phase, State

#: The words by which users can subscribe, by event. Success adds its status; see
#: `Lifecycle.word_of`.
WORDS: Mapping[type[e.Event], str] = {
    e.Created: "created",
    e.AttemptFailed: "attempt_failed",
    e.Failed: "failed",
    e.Expired: "expired",
    e.Cancelled: "cancelled",
    e.OutcomeUnknown: "unknown",
}
#: The stored names of the events of every lifecycle; all others are called after their class.
EVENT_NAMES: Mapping[type[e.Event], str] = {
    e.Created: "RequestCreated",
    e.Updated: "RequestUpdated",
    e.OutcomeResolved: "OutcomeResolved",
    **{kind: kind.__name__ for kind in FOLDS if kind is not e.Updated},
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Lifecycle:
    """Pure rules: no I/O, no clock, no chance. `lifecycle()` makes one."""

    name: str
    operations: Operations
    #: Every public status, in the order of a request's life.
    statuses: tuple[str, ...]
    #: A request may want a job in these: the sweeper looks for lost jobs among them. Statuses of
    #: success are never among them, because too many requests have them.
    open: frozenset[str]
    #: No automatic step leads out of these.
    terminal: frozenset[str]
    #: The commands that it accepts beside Create, and the decision for each.
    decisions: Mapping[type, Decide]
    #: How each event changes the state. An event without an entry only increases the version.
    folds: Mapping[type, Fold]
    #: Its events and their stored names, without flow and version.
    event_names: Mapping[type[e.Event], str]
    #: The events to which users can subscribe, and their words.
    words: Mapping[type, str]
    #: The part of a stream's name between the flow and the tenant.
    stream: str = "request"
    #: Event → the counter of its metric, `<name>_total`.
    counters: Mapping[type, str] = field(default_factory=dict)
    #: Every call is journaled before it is made, even if a durable lease would suffice.
    journal: bool = False
    #: Field → its type, which a payload must have.
    needs: Mapping[str, type] = field(default_factory=dict)
    #: The operation and facts with which a request of this payload begins. None: with the first
    #: operation.
    opens: Callable[[Any], tuple[str, dict[str, Any]]] | None = None
    #: (what is stored, the first operation) → State.facts, of a type of its own. None: as stored.
    facts: Callable[[dict[str, Any], str], Any] | None = None
    #: How much money the open operation may have moved. None: its requests move no money.
    in_doubt: Callable[[State], Money | None] | None = None

    @cached_property
    def success(self) -> frozenset[str]:
        """The statuses in which an operation has succeeded."""
        return frozenset(one.status for one in self.operations.values())

    def phase_of(self, status: str) -> Phase:
        """The phase of a request in a status."""
        if status in self.open:
            return "unknown" if status == "unknown" else "open"
        return "ended" if status in self.terminal else "idle"

    def decide(self, state: State | None, command: Command, rules: Rules) -> list[e.Event]:
        """The events that follow from a command; none: it changes nothing.

        Raises CommandRefused if the command is impossible in this state.
        """
        if type(command) is Create:
            # The event store refuses a second Create of the same stream: it expects version 0.
            return [] if state is not None else [first_event(command, self.operations.first)]
        if state is None:
            raise CommandRefused("request_not_found", "no such request")
        decision = self.decisions.get(type(command))
        if decision is None:
            text = f"a {self.name} does not take the command {type(command).__name__}"
            raise CommandRefused("not_supported", text)
        return decision(state, command, rules, self.operations[state.operation])

    def evolve(self, state: State | None, event: e.Event | None, meta: e.Meta) -> State:
        """The state after an event; None: an event of a type that this code does not know."""
        if state is None:
            if not isinstance(event, e.Created):
                raise ValueError(f"a stream must begin with Created, not {type(event).__name__}")
            facts = event.facts if self.facts is None else self.facts(event.facts, event.operation)
            return created(event, meta, facts)
        fold = self.folds.get(type(event))
        if fold is None:
            return replace(state, version=state.version + 1)
        return fold(state, event, state.version + 1, meta.occurred_at)

    def fold(
        self, history: Iterable[tuple[e.Event | None, e.Meta]], state: State | None = None
    ) -> State | None:
        """The state after all of these events, oldest first."""
        for event, meta in history:
            state = self.evolve(state, event, meta)
        return state

    def word_of(self, event: e.Event | None) -> str | None:
        """The word under which users can subscribe to an event; None: they cannot."""
        if isinstance(event, e.OutcomeResolved):
            if event.result == "executed":
                return self.operations[event.operation].status
            return "failed" if event.result == "rejected" else None
        return self.words.get(type(event))


def lifecycle(name: str, *operations: Operation, **more: Mapping[type, Any]) -> Lifecycle:
    """A lifecycle of these operations under the shared rules.

    `more` replaces and adds entries of `decisions`, `folds`, `event_names` and `words`.
    """
    of_operations = Operations(*operations)
    done = {kind: one for one in operations for kind in (one.done, one.done_late)}
    given_up = ("failed", "expired", "cancelled")
    over = dict.fromkeys(one.status for one in operations)
    return Lifecycle(
        name=name,
        operations=of_operations,
        statuses=("requested", "validated", "queued", *over, *given_up, "unknown"),
        open=frozenset({"queued", "unknown"}),
        terminal=frozenset({one.status for one in operations if one.is_last}.union(given_up)),
        decisions={**DECISIONS, **more.get("decisions", {})},
        folds={
            **FOLDS,
            e.OutcomeResolved: resolved(of_operations),
            **{kind: succeeded(one) for kind, one in done.items()},
            **more.get("folds", {}),
        },
        event_names={
            **EVENT_NAMES,
            **{kind: kind.__name__ for kind in done},
            **more.get("event_names", {}),
        },
        words={
            **WORDS,
            **{kind: one.status for kind, one in done.items()},
            **more.get("words", {}),
        },
    )
