"""Draws each lifecycle as an SVG, from the lifecycle value itself.

`python -m tests.docs.lifecycle_drawing` writes docs/lifecycle-*.svg. The transitions are found by
applying every command to every state that can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from gesta.domain import commands as c
from gesta.domain.events import Event, Meta
from gesta.domain.lifecycle import Lifecycle
from gesta.domain.money import Money
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Done, Movement, Rejected, Retry, Unknown, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State
from gesta.domain.task import TASK
from gesta.domain.transaction import commands as t
from gesta.domain.transaction.funds import funds_of, opening_facts
from gesta.domain.transaction.lifecycle import TRANSACTION

DOCS = Path(__file__).parents[2] / "docs"
LIFECYCLES = {f"lifecycle-{one.name}.svg": one for one in (NOTIFICATION, TASK, TRANSACTION)}

NOW = 1_000_000
POLICIES: tuple[UnknownPolicy, ...] = ("manual", "reconcile", "resend")
ATTEMPTS = 2
#: From status, to status → what leads there.
Transitions = dict[tuple[str, str], list[str]]
#: What a call of a gateway leaves in the journal.
JOURNAL = {"call": b"c", "key_seconds": 82_800.0, "can_look_up": True}

#: Pixels: of a letter of a label, and of the table.
LETTER, COLUMN, TOP, ROW = 6, 110, 60, 30


def transitions(lifecycle: Lifecycle) -> Transitions:
    found: Transitions = {}
    for policy in POLICIES:
        rules = c.Rules(retry=RetryPolicy(attempts=ATTEMPTS), on_unknown=policy)
        created = [_after(lifecycle, None, (create,), rules) for create in _creates(lifecycle)]
        seen, left = set[object](), [state for state in created if state is not None]
        while left:
            state = left.pop()
            if _key(state) in seen:
                continue
            seen.add(_key(state))
            for label, *commands in _commands(lifecycle, state):
                then = _after(lifecycle, state, commands, rules)
                if then is None:
                    continue
                left.append(then)
                is_retry = label == "attempt: Retry" and then.status == "queued"
                if then.status != state.status or is_retry:
                    labels = found.setdefault((state.status, then.status), [])
                    if label not in labels:
                        labels.append(label)
    return found


def _creates(lifecycle: Lifecycle) -> Iterator[c.Create]:
    if lifecycle is not TRANSACTION:
        yield c.Create("r", "shop.note", b"{}", NOW, ttl_ms=1)
        return
    for first in ("sale", "authorization"):
        facts = opening_facts(Money.of_minor(100, "EUR"), first, "g")
        yield c.Create("r", "payment.card", b"{}", NOW, ttl_ms=1, operation=first, facts=facts)


def _key(state: State) -> object:
    funds = funds_of(state) if state.facts else None
    return (
        state.operation,
        funds and (funds.authorized, funds.captured, funds.refunded, funds.released),
        state.status,
        state.in_doubt,
        min(state.attempts - state.attempts_before, ATTEMPTS),
        state.cancel_requested,
        state.policy,
        state.due_at is None,
        state.expires_at is None,
    )


def _commands(lifecycle: Lifecycle, state: State) -> Iterator[tuple[str, *tuple[c.Command, ...]]]:
    attempt = state.attempts + 1
    moves_money = lifecycle is TRANSACTION
    journal = (c.Start("key", JOURNAL),) if moves_money and state.phase == "open" else ()
    done = Done("pi_1", movement=Movement(None)) if moves_money else Done()
    for outcome in (done, Retry("busy"), Rejected("bad"), Unknown("lost")):
        name = type(outcome).__name__
        if state.phase != "ended" or isinstance(outcome, Done):
            label = f"attempt: {name}" if state.phase == "open" else f"late or resent: {name}"
            reported = c.RecordOutcome(
                outcome, attempt, NOW, intent=state.intent, operation=state.operation
            )
            yield label, *journal, reported
        if state.status == "unknown":
            asked = c.Reconciled(outcome, NOW, operation=state.operation, intent=state.intent)
            yield f"reconcile: {name}", asked
    yield "process died", *journal, c.Lose(NOW)
    yield "expire", c.Expire(NOW + 10)
    yield "cancel", c.Cancel()
    yield "cancel", c.Cancel(active=True)
    yield "redrive", c.Redrive(NOW)
    for option, result in (
        ("--succeeded", "executed"),
        ("--not-executed", "not_executed"),
        ("--failed", "rejected"),
    ):
        yield f"resolve: {option}", c.Resolve(result, "ada", "log")  # type: ignore[arg-type]
    if moves_money:
        for kind in (t.Capture, t.Void, t.Refund, t.Reverse):
            yield kind.__name__.lower(), kind(NOW)


def _after(
    lifecycle: Lifecycle, state: State | None, commands: Sequence[c.Command], rules: c.Rules
) -> State | None:
    """The state after these commands; None if the last one is refused or changes nothing."""
    meta = Meta("default", "shop.note", "r", NOW, correlation_id="r", causation_id="r")
    events: list[Event] = []
    for command in commands:
        try:
            events = lifecycle.decide(state, command, rules)
        except c.CommandRefused:
            return None
        for event in events:
            state = lifecycle.evolve(state, event, meta)
    return state if events else None


def drawing(lifecycle: Lifecycle) -> str:
    """One column for each status, one row for each transition."""
    found = transitions(lifecycle)
    reached = {"queued"}.union(*found)
    statuses = [one for one in lifecycle.statuses if one in reached]
    # Success next to the states that lead to it, unknown next to queued.
    statuses.sort(key=lambda one: (one != "queued", one != "unknown"))
    left = 60 + LETTER * max(len(_joined(labels)) for labels in found.values())
    at = {status: left + COLUMN * number for number, status in enumerate(statuses)}
    rows = sorted(found.items(), key=lambda one: (at[one[0][0]], at[one[0][1]]))
    width, height = left + COLUMN * len(statuses) - 40, TOP + ROW * len(rows) + 30
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        f"<title>Lifecycle of a {lifecycle.name}</title>",
        (
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
            ' markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#333"/></marker></defs>'
        ),
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for status, x in at.items():
        fill = "#dcf5e0" if status in lifecycle.success else "#fff3cd"
        fill = fill if status in lifecycle.success | lifecycle.open else "#f8dcdc"
        parts += [
            f'<path d="M{x} 44V{height - 16}" stroke="#ccc"/>',
            (
                f'<rect x="{x - 46}" y="16" width="92" height="28" rx="6" fill="{fill}"'
                ' stroke="#666"/>'
            ),
            f'<text x="{x}" y="35" text-anchor="middle" font-weight="bold">{status}</text>',
        ]
    for number, ((source, target), labels) in enumerate(rows):
        y, start, end = TOP + ROW * number + 14, at[source], at[target]
        line = f"M{start} {y - 5}h34v10h-34" if source == target else f"M{start} {y}H{end}"
        parts += [
            f'<text x="12" y="{y + 4}">{escape(_joined(labels))}</text>',
            f'<circle cx="{start}" cy="{y - 5 * (source == target)}" r="3" fill="#333"/>',
            f'<path d="{line}" fill="none" stroke="#333" marker-end="url(#arrow)"/>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _joined(labels: list[str]) -> str:
    """`attempt: Done, Retry; cancel`."""
    grouped: dict[str, list[str]] = {}
    for label in labels:
        trigger, _, outcome = label.partition(": ")
        grouped.setdefault(trigger, []).append(outcome)
    return "; ".join(
        f"{trigger}: {', '.join(outcomes)}" if any(outcomes) else trigger
        for trigger, outcomes in grouped.items()
    )


if __name__ == "__main__":
    for name, one in LIFECYCLES.items():
        (DOCS / name).write_text(drawing(one), encoding="utf-8")
        print(DOCS / name)
