"""The lifecycle of a notification as its specification has it: which event may lead from which
status to which.
"""

from __future__ import annotations

from gesta.domain.events import Event, Updated
from gesta.domain.state import State

#: None: there was no request. `requested` and `validated` are passed in one step: what intake
#: accepts is queued at once.
MOVES: dict[str, frozenset[tuple[str | None, str]]] = {
    # From the line on the message request's states: requested|validated|queued|sent|failed.
    "Created": frozenset({(None, "queued")}),
    "Sent": frozenset({("queued", "sent"), ("unknown", "sent")}),
    "Failed": frozenset({("queued", "failed"), ("unknown", "failed")}),
    # From the hazards: a success that comes late counts, and a failure that comes late does not;
    "SentLate": frozenset({("failed", "sent"), ("expired", "sent"), ("cancelled", "sent")}),
    # while attempts remain it stays queued;
    "AttemptStarted": frozenset({("queued", "queued"), ("unknown", "unknown")}),
    "AttemptFailed": frozenset({("queued", "queued")}),
    # From design.md section 4: expired, cancelled, unknown. What may have happened is neither of
    # the first two.
    "Expired": frozenset({("queued", "expired")}),
    "Cancelled": frozenset({("queued", "cancelled")}),
    "OutcomeUnknown": frozenset(
        (before, "unknown") for before in ("queued", "unknown", "failed", "expired", "cancelled")
    ),
    "OutcomeResolved": frozenset(
        (before, after)
        for before in ("unknown", "failed")
        for after in ("sent", "failed", "queued")
    ),
    # From the hazards: failed → queued by an explicit requeue. Nothing leads out of sent.
    "Updated redrive": frozenset(
        (before, "queued") for before in ("failed", "expired", "cancelled", "unknown")
    ),
    "Updated retry": frozenset({("queued", "queued"), ("unknown", "unknown")}),
    "Updated cancel_requested": frozenset({("queued", "queued")}),
    "Updated postponed": frozenset({("queued", "queued"), ("unknown", "unknown")}),
    "Updated held": frozenset({("queued", "queued"), ("unknown", "unknown")}),
    "Updated released": frozenset({("queued", "queued"), ("unknown", "unknown")}),
    "Updated purged": frozenset({("failed", "failed")}),
    # What a provider reports stands beside the status.
    "Delivered": frozenset({("sent", "sent")}),
    "Bounced": frozenset({("sent", "sent")}),
    "Complained": frozenset({("sent", "sent")}),
}


def kind_of(event: Event) -> str:
    return f"Updated {event.change}" if isinstance(event, Updated) else type(event).__name__


def is_allowed(before: State | None, event: Event, after: State) -> bool:
    return (None if before is None else before.status, after.status) in MOVES[kind_of(event)]
