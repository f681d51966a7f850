"""What must hold at every step of every life, each promise with the words it is reported by.

The checker keeps its own books.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import ceil

import msgspec

from gesta.domain.codec import decode_meta, encode, event_types
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Expire,
    Lose,
    Purge,
    Reconciled,
    RecordOutcome,
    RecordReceipt,
    Redrive,
    Resolve,
    Rules,
    Start,
    Withdraw,
)
from gesta.domain.events import (
    AttemptFailed,
    Event,
    Failed,
    OutcomeResolved,
    SentLate,
    Updated,
)
from gesta.domain.ids import idempotency_key
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Done, Rejected, Retry, Unknown
from gesta.domain.retry_policy import LONGEST_WAIT_SECONDS
from gesta.domain.state import State
from tests.domain.allowed import is_allowed
from tests.domain.moves import Life
from tests.domain.story import FLOW, T0, Story, meta

decide, evolve, fold = NOTIFICATION.decide, NOTIFICATION.evolve, NOTIFICATION.fold

GIVEN_UP = ("failed", "expired", "cancelled")


class Broken(AssertionError):
    """A promise does not hold."""


class Step(msgspec.Struct):
    """One command and what came of it."""

    rules: Rules
    before: State
    command: Command
    events: list[Event]
    after: State
    now: int
    #: By the checker's own books, before the command: an ended attempt of this intent may have had
    #: its effect.
    in_doubt: bool
    #: By the checker's own books: nothing of this intent can have been attempted before this.
    opened_at: int

    @property
    def retry_after_ms(self) -> int:
        """How long the provider asked us to wait."""
        outcome = getattr(self.command, "outcome", None)
        wait_seconds = outcome.after_seconds if isinstance(outcome, Retry | Unknown) else 0.0
        return ceil(min(wait_seconds, LONGEST_WAIT_SECONDS) * 1000)


def success(step: Step) -> Iterator[tuple[str, bool]]:
    before, command, after = step.before, step.command, step.after
    done = isinstance(command, RecordOutcome | Reconciled) and isinstance(command.outcome, Done)
    reported = isinstance(command, RecordReceipt)
    yield (
        "sent is final: no command but a report after it yields an event",
        before.status != "sent" or reported or not step.events,
    )
    yield (
        "whatever comes after it, sent stays sent",
        before.status != "sent" or after.status == "sent",
    )
    yield "evidence of success always ends in sent", not done or after.status == "sent"
    if done:
        late = [type(event) for event in step.events] == [SentLate]
        yield "success after giving up is recorded as late", late or before.status not in GIVEN_UP
        yield "success after giving up is the only late one", not late or before.status in GIVEN_UP
        yield "a second success yields no event", decide(after, command, step.rules) == []
    if isinstance(command, RecordReceipt):
        yield "a report shows that it was sent", not step.events or after.status == "sent"
        yield "the same report again yields no event", decide(after, command, step.rules) == []
        yield "a report is on record", command.report in after.reports
    evidence = done or reported or (isinstance(command, Resolve) and command.result == "executed")
    yield (
        "nothing but evidence leads to sent",
        after.status != "sent" or before.status == "sent" or evidence,
    )


def attempts(step: Step) -> Iterator[tuple[str, bool]]:
    before, command, after = step.before, step.command, step.after
    yield "attempts never decrease", after.attempts >= before.attempts
    if isinstance(command, RecordOutcome) and not isinstance(command.outcome, Done):
        stale = command.attempt <= before.attempts or command.intent != before.intent
        yield "a stale attempt's failure changes nothing", not stale or not step.events
    if isinstance(command, Start) and step.events:
        yield (
            "only an open operation is started",
            before.wants == "execute" and before.started is None and not before.cancel_requested,
        )
        yield "the started attempt is the next one", after.started == before.attempts + 1
    if isinstance(command, Lose) and step.events:
        yield (
            "a lost attempt is counted as one and unknown",
            after.attempts == before.attempts + 1 and after.status == "unknown",
        )
        yield (
            "nothing is lost before it was due",
            before.started is not None or (before.due_at or 0) <= step.now,
        )


def keys(step: Step) -> Iterator[tuple[str, bool]]:
    before, command, after = step.before, step.command, step.after
    same = _key(before) == _key(after)
    yield (
        "the key changes by a redrive with a new intent only",
        same or isinstance(command, Redrive),
    )
    yield "a new intent is the next number", same or after.intent == before.intent + 1
    if isinstance(command, Redrive) and not same:
        yield "no new intent while unknown unless forced", command.again or not step.in_doubt
    if isinstance(command, Redrive) and same and step.events:
        yield (
            "the same intent is redriven only under a key that protects",
            step.rules.on_unknown == "resend",
        )
    window = step.rules.key_protects_seconds
    if window is not None and step.events and after.in_doubt and after.wants == "execute":
        yield (
            "nothing unknown is resent when the key is forgotten",
            (after.due_at or 0) <= step.opened_at + window * 1000,
        )


def unknown_outcomes(step: Step, *, in_doubt_after: bool) -> Iterator[tuple[str, bool]]:
    before, command, after = step.before, step.command, step.after
    yield "unknown is remembered until it is resolved", after.in_doubt == in_doubt_after
    yield "status unknown means possibly executed", after.status != "unknown" or after.in_doubt
    yield (
        "nothing unknown expires or is cancelled",
        after.status not in ("expired", "cancelled") or not in_doubt_after,
    )
    refused = (
        isinstance(command, RecordOutcome)
        and isinstance(command.outcome, Rejected)
        and command.called
    )
    is_decided = refused or isinstance(command, Reconciled | Resolve)
    if before.status == "unknown" and after.status in GIVEN_UP:
        yield "unknown never fails or expires by itself", is_decided
    journalled = before.started is not None and after.status in ("expired", "cancelled")
    yield (
        "a journalled attempt without an end is neither expired nor cancelled",
        not journalled or isinstance(command, RecordOutcome | Reconciled),
    )
    if (
        isinstance(command, RecordOutcome)
        and not command.called
        and step.in_doubt
        and not before.is_terminal
    ):
        yield (
            "an attempt without a call resolves nothing",
            isinstance(command.outcome, Done) or after.status not in GIVEN_UP,
        )
    yield (
        "manual is never asked or resent",
        not (after.status == "unknown" and after.policy == "manual") or after.due_at is None,
    )


def endings(step: Step) -> Iterator[tuple[str, bool]]:
    before, command, after, retry = step.before, step.command, step.after, step.rules.retry
    kinds = [type(event) for event in step.events]
    ended = isinstance(command, RecordOutcome | Lose | Reconciled | Resolve) and bool(step.events)
    if before.cancel_requested and ended:
        yield "what was cancelled is not tried again", after.wants != "execute"
    if (
        before.expires_at is not None
        and ended
        and not isinstance(command, Resolve)
        and after.wants == "execute"
    ):
        yield "nothing is planned beyond its time to live", (after.due_at or 0) < before.expires_at
    if isinstance(command, Expire) and after.status == "expired" and before.status != "expired":
        yield (
            "nothing expires early",
            before.expires_at is not None and step.now >= before.expires_at,
        )
    live = (
        isinstance(command, RecordOutcome)
        and isinstance(command.outcome, Retry)
        and bool(step.events)
    )
    if isinstance(command, RecordOutcome) and live and not step.in_doubt:
        remain = (
            command.attempt - before.attempts_before < retry.attempts
            and retry.elapsed_seconds is None
        )
        free = before.expires_at is None and not before.cancel_requested
        yield (
            "a retry while attempts remain is AttemptFailed and not Failed",
            not (remain and free) or kinds == [AttemptFailed],
        )
        spent = command.attempt - before.attempts_before >= retry.attempts
        yield "a spent budget ends it", not spent or after.is_terminal
    if kinds == [Failed]:
        refused = isinstance(command, RecordOutcome) and isinstance(command.outcome, Rejected)
        yield (
            "a single Failed is the provider's refusal, or a withdrawal",
            refused or isinstance(command, Withdraw),
        )
    if isinstance(command, Withdraw):
        yield (
            "nothing is withdrawn once anything has happened",
            not step.events or before.version == 1,
        )
        yield (
            "what is withdrawn has ended without an attempt",
            not step.events or (after.is_terminal and after.attempts == 0),
        )
    left = before.is_terminal and not after.is_terminal
    unknown = isinstance(command, RecordOutcome) and isinstance(command.outcome, Unknown)
    yield (
        "only a redrive or a late unknown leads out of an ending",
        not left or isinstance(command, Redrive) or unknown,
    )
    yield "a late unknown is never resent", not (left and unknown) or after.wants != "execute"


def liveness(step: Step) -> Iterator[tuple[str, bool]]:
    command, after, rules = step.command, step.after, step.rules
    quarantined = after.status == "unknown" and after.due_at is None
    yield (
        "what is neither over nor left to a person wants a job",
        after.is_terminal or quarantined or after.wants is not None,
    )
    yield "what is left to a person says why", not quarantined or bool(after.reason)
    if quarantined and after.started is None:
        yield (
            "a person can resolve what is left to them",
            bool(decide(after, Resolve("executed", "ann", "seen"), rules)),
        )
    if after.wants is not None and after.is_far:
        yield (
            "what is due far away is found by the sweep",
            after.sweep_at is not None and after.sweep_at <= (after.due_at or 0),
        )
    yield (
        "a question to the provider is put by the sweep",
        after.wants != "reconcile" or after.sweep_at == after.due_at,
    )
    if after.status == "queued" and after.expires_at is not None:
        yield (
            "what can expire is found by the sweep",
            after.sweep_at is not None and after.sweep_at <= after.expires_at,
        )
    if isinstance(command, RecordOutcome) and isinstance(command.outcome, Unknown) and step.events:
        yield (
            "under ask the provider is asked",
            rules.on_unknown != "reconcile" or after.wants == "reconcile",
        )
        yield (
            "under resend it is resent while it may be",
            not _may_be_resent(step, command) or after.wants == "execute",
        )
    if step.events and after.wants is not None and isinstance(command, RecordOutcome | Reconciled):
        yield (
            "nothing is due before Retry-After",
            (after.due_at or 0) >= step.now + step.retry_after_ms,
        )
    yield (
        "a terminal request waits for nothing",
        not after.is_terminal or (after.wants, after.sweep_at, after.due_at) == (None,) * 3,
    )


def _may_be_resent(step: Step, command: RecordOutcome) -> bool:
    before, rules = step.before, step.rules
    bounded = (
        rules.retry.elapsed_seconds is not None
        or rules.key_protects_seconds is not None
        or before.expires_at is not None
    )
    given_up = before.is_terminal or before.cancel_requested
    budget = command.attempt - before.attempts_before < rules.retry.attempts
    return rules.on_unknown == "resend" and budget and not bounded and not given_up


def openings(before: State, event: Event, after: State) -> Iterator[tuple[str, bool]]:
    """Of each single event."""
    yield (
        "each event leads from one status to another as the lifecycle has it",
        is_allowed(before, event, after),
    )
    yield "version counts events", after.version == before.version + 1
    reopened = after.status == "queued" and before.status != "queued"
    asks = after.wants == "reconcile" and before.wants != "reconcile"
    yield (
        "each opening is a dispatch of its own",
        not (reopened or asks) or after.dispatch_version == after.version,
    )
    hurried = isinstance(event, Updated) and event.change == "retry"
    moved = after.dispatch_version != before.dispatch_version
    yield (
        "nothing but an opening is dispatched",
        not moved or reopened or hurried or after.wants == "reconcile",
    )


def check_life(life: Life) -> Story:
    """Live it, or raise Broken with the promise that did not hold."""
    deliver_at = None if life.deliver_in_ms is None else T0 + life.deliver_in_ms
    story = Story(life.rules, deliver_at=deliver_at, ttl_ms=life.ttl_ms)
    in_doubt, opened_at = False, max(T0, deliver_at or 0)
    for move in life.steps:
        story.now += move.wait_ms
        before, count, command = (
            story.state,
            len(story.history),
            move.command(story.state, story.now),
        )
        if not _is_repeatable(before, command, life.rules):
            raise Broken("the same command gives the same events")
        try:
            events = story.tell(command)
        except CommandRefused:
            _raise_first(
                [
                    (
                        "a refusal changes nothing",
                        (story.state, len(story.history)) == (before, count),
                    )
                ],
                move,
                before,
            )
            continue
        step = Step(
            life.rules, before, command, events, story.state, story.now, in_doubt, opened_at
        )
        in_doubt, opened_at = _books(step)
        checked = (
            success(step),
            attempts(step),
            keys(step),
            unknown_outcomes(step, in_doubt_after=in_doubt),
            endings(step),
            liveness(step),
        )
        _raise_first(chain(*checked), command, before)
        state = before
        for event, meta_of in story.history[count:]:
            following = evolve(state, event, meta_of)
            _raise_first(openings(state, event, following), command, state)
            state = following
    _check_history(story)
    return story


def _books(step: Step) -> tuple[bool, int]:
    """`in_doubt` and opening by the commands alone, so that the fold's own flags are held against
    something.
    """
    command, events = step.command, step.events
    in_doubt, opened_at = step.in_doubt, step.opened_at
    if step.after.status == "sent" or any(isinstance(event, OutcomeResolved) for event in events):
        in_doubt = False
    elif _leaves_unknown(step):
        in_doubt = in_doubt or bool(events)
    elif isinstance(command, Redrive) and _key(step.before) != _key(step.after):
        in_doubt = False
    if events and not in_doubt and not isinstance(command, Cancel | Purge):
        # Whatever ran before has ended without an effect: only what begins from now on can have
        # one.
        opened_at = max(step.now, step.after.due_at or 0)
    return in_doubt, opened_at


def _leaves_unknown(step: Step) -> bool:
    command = step.command
    if isinstance(command, RecordOutcome):
        return isinstance(command.outcome, Unknown)
    return isinstance(command, Lose) or (
        isinstance(command, Expire) and step.before.started is not None
    )


def _key(state: State) -> str:
    return idempotency_key(state.tenant, state.id, state.operation, state.intent)


def _is_repeatable(state: State, command: Command, rules: Rules) -> bool:
    try:
        return decide(state, command, rules) == decide(state, command, rules)
    except CommandRefused:
        return True


def _raise_first(
    promises: Iterator[tuple[str, bool]] | list[tuple[str, bool]], command: object, before: State
) -> None:
    for promise, holds in promises:
        if not holds:
            raise Broken(f"{promise}: {command} on {before}")


def _check_history(story: Story) -> None:
    """The events alone, also after a trip through their stored bytes, tell the same state."""
    types = event_types(FLOW)
    stored = [
        (types.name_of[type(event)], encode(event), encode(meta)) for event, meta in story.history
    ]
    read = [(types.decode(name, data), decode_meta(meta)) for name, data, meta in stored]
    known = all(type(event) in NOTIFICATION.event_names for event, _ in story.history)
    _raise_first(
        [
            ("only known events are emitted", known),
            ("the fold of all events is the state", fold(story.history) == story.state),
            (
                "what is stored and read again is the same",
                read == story.history and fold(read) == story.state,
            ),
            ("version is the number of events", story.state.version == len(story.history)),
            ("an unknown event only counts", _counts_only(story.state)),
        ],
        None,
        story.state,
    )


def _counts_only(state: State) -> bool:
    return evolve(state, None, meta(state.updated_at + 1)) == msgspec.structs.replace(
        state, version=state.version + 1
    )
