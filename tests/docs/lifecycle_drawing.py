"""Draws each lifecycle as an SVG, from the lifecycle value itself.

`python -m tests.docs.lifecycle_drawing` writes docs/lifecycle-*.svg. The transitions are found by
applying every command to every state that can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from gesta.domain import commands as c
from gesta.domain.events import Meta
from gesta.domain.lifecycle import Lifecycle
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.outcome import Done, Rejected, Retry, Unknown, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State
from gesta.domain.task import TASK

DOCS = Path(__file__).parents[2] / "docs"
LIFECYCLES = {f"lifecycle-{one.name}.svg": one for one in (NOTIFICATION, TASK)}

NOW = 1_000_000
POLICIES: tuple[UnknownPolicy, ...] = ("manual", "reconcile", "resend")
ATTEMPTS = 2
#: From status, to status → what leads there.
Transitions = dict[tuple[str, str], list[str]]

LEFT, COLUMN, TOP, ROW = 470, 110, 60, 30


def transitions(lifecycle: Lifecycle) -> Transitions:
    found: Transitions = {}
    for policy in POLICIES:
        rules = c.Rules(retry=RetryPolicy(attempts=ATTEMPTS), on_unknown=policy)
        create = c.Create("r", "shop.note", b"{}", NOW, ttl_ms=1)
        first = _after(lifecycle, None, create, rules)
        assert first is not None
        seen, left = set[object](), [first]
        while left:
            state = left.pop()
            if _key(state) in seen:
                continue
            seen.add(_key(state))
            for label, command in _commands(state):
                then = _after(lifecycle, state, command, rules)
                if then is None:
                    continue
                left.append(then)
                is_retry = label == "attempt: Retry" and then.status == "queued"
                if then.status != state.status or is_retry:
                    labels = found.setdefault((state.status, then.status), [])
                    if label not in labels:
                        labels.append(label)
    return found


def _key(state: State) -> object:
    return (
        state.status,
        state.in_doubt,
        min(state.attempts - state.attempts_before, ATTEMPTS),
        state.cancel_requested,
        state.policy,
        state.due_at is None,
        state.expires_at is None,
    )


def _commands(state: State) -> Iterator[tuple[str, c.Command]]:
    attempt = state.attempts + 1
    for outcome in (Done(), Retry("busy"), Rejected("bad"), Unknown("lost")):
        name = type(outcome).__name__
        if state.phase != "ended" or isinstance(outcome, Done):
            label = f"attempt: {name}" if state.phase == "open" else f"late or resent: {name}"
            yield label, c.RecordOutcome(outcome, attempt, NOW)
        if state.status == "unknown":
            yield f"reconcile: {name}", c.Reconciled(outcome, NOW)
    yield "process died", c.Lose(NOW)
    yield "expire", c.Expire(NOW + 10)
    yield "cancel", c.Cancel()
    yield "cancel", c.Cancel(active=True)
    yield "redrive", c.Redrive(NOW)
    for option, result in (
        ("--succeeded", "executed"),
        ("--not-executed", "not_executed"),
        ("--failed", "rejected"),
    ):
        yield f"resolve {option}", c.Resolve(result, "ada", "log")  # type: ignore[arg-type]


def _after(
    lifecycle: Lifecycle, state: State | None, command: c.Command, rules: c.Rules
) -> State | None:
    """The state after a command; None if it is refused or changes nothing."""
    try:
        events = lifecycle.decide(state, command, rules)
    except c.CommandRefused:
        return None
    meta = Meta("default", "shop.note", "r", NOW, correlation_id="r", causation_id="r")
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
    at = {status: LEFT + COLUMN * number for number, status in enumerate(statuses)}
    rows = sorted(found.items(), key=lambda one: (at[one[0][0]], at[one[0][1]]))
    width, height = LEFT + COLUMN * len(statuses) - 40, TOP + ROW * len(rows) + 30
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
