"""What each event changes in the state, and that it changes nothing else."""

from __future__ import annotations

import msgspec
import pytest

from gesta.domain import events as e
from gesta.domain.ids import job_id, own_job_id
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.state import State
from tests.domain.story import FLOW, ID, T0, Story, meta

evolve, fold = NOTIFICATION.evolve, NOTIFICATION.fold

AT = T0 + 1000
QUEUED = Story(deliver_at=T0 + 500).state
RUNNING = evolve(QUEUED, e.AttemptStarted(1, "key"), meta(T0 + 600))
UNKNOWN = evolve(
    RUNNING, e.OutcomeUnknown(1, "timeout", "reconcile", "no answer", T0 + 700), meta(T0 + 650)
)
RESENDING = evolve(
    evolve(RUNNING, e.OutcomeUnknown(1, "timeout", "resend", "", T0 + 700), meta(T0 + 650)),
    e.AttemptStarted(2, "key"),
    meta(T0 + 700),
)
FAILED = evolve(RUNNING, e.Failed("gone", 1, last_error="410"), meta(T0 + 650))
SENT = {
    "status": "sent",
    "attempts": 2,
    "provider_id": "p-1",
    "target_id": "t-1",
    "detail": "ok",
    "due_at": None,
}


def changed(before: State, event: e.Event) -> dict[str, object]:
    """What is different after the event, beside version and time, which always move, and the
    phase, which follows the status.
    """
    after = evolve(before, event, meta(AT))
    assert (after.version, after.updated_at) == (before.version + 1, AT)
    assert after.phase == NOTIFICATION.phase_of(after.status)
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    return {
        name: value
        for name, value in new.items()
        if value != old[name] and name not in ("version", "updated_at", "phase")
    }


CHANGES: list[tuple[State, e.Event, dict[str, object]]] = [
    (QUEUED, e.AttemptStarted(1, "key"), {"started": 1, "first_attempt_at": AT}),
    (RUNNING, e.AttemptStarted(2, "key"), {"started": 2}),
    (
        QUEUED,
        e.AttemptFailed(1, "busy", "503", AT + 9),
        {
            "attempts": 1,
            "due_at": AT + 9,
            "reason": "busy",
            "detail": "503",
            "first_attempt_at": AT,
        },
    ),
    (
        RUNNING,
        e.AttemptFailed(1, "busy"),
        {"attempts": 1, "started": None, "due_at": None, "reason": "busy"},
    ),
    (QUEUED, e.Sent(2, "p-1", "t-1", "ok"), {**SENT, "first_attempt_at": AT}),
    (RUNNING, e.Sent(2, "p-1", "t-1", "ok"), {**SENT, "started": None}),
    (
        FAILED,
        e.SentLate(2, "p-1", "t-1", "ok"),
        {name: SENT[name] for name in SENT if name != "due_at"} | {"reason": ""},
    ),
    (
        RUNNING,
        e.Failed("gone", 1, last_error="410"),
        {
            "status": "failed",
            "attempts": 1,
            "started": None,
            "due_at": None,
            "reason": "gone",
            "detail": "410",
        },
    ),
    (
        RUNNING,
        e.OutcomeUnknown(1, "timeout", "resend", "no answer", AT + 9),
        {
            "status": "unknown",
            "attempts": 1,
            "started": None,
            "due_at": AT + 9,
            "in_doubt": True,
            "policy": "resend",
            "reason": "timeout",
            "detail": "no answer",
        },
    ),
    # No process knows when a lost attempt began: it may have been as early as it was due.
    (
        QUEUED,
        e.OutcomeUnknown(1, "lease_lost", "manual"),
        {
            "status": "unknown",
            "attempts": 1,
            "due_at": None,
            "in_doubt": True,
            "policy": "manual",
            "reason": "lease_lost",
            "first_attempt_at": T0 + 500,
        },
    ),
    (
        UNKNOWN,
        e.OutcomeUnknown(1, "timeout", "reconcile", "no answer", AT + 9),
        {"due_at": AT + 9, "dispatch_version": 4, "asked": 1},
    ),
    (
        UNKNOWN,
        e.OutcomeResolved("executed", "ann", "seen", "p-1"),
        {
            "status": "sent",
            "in_doubt": False,
            "due_at": None,
            "policy": "",
            "reason": "",
            "detail": "seen",
            "provider_id": "p-1",
        },
    ),
    (
        UNKNOWN,
        e.OutcomeResolved("rejected", "ann", "seen"),
        {
            "status": "failed",
            "in_doubt": False,
            "due_at": None,
            "policy": "",
            "reason": "rejected",
            "detail": "seen",
        },
    ),
    (
        UNKNOWN,
        e.OutcomeResolved("not_executed", "ann", "seen", new_budget=True),
        {
            "status": "queued",
            "in_doubt": False,
            "due_at": AT,
            "policy": "",
            "reason": "",
            "detail": "seen",
            "dispatch_version": 4,
            "attempts_before": 1,
            "reopened_at": AT,
        },
    ),
    (
        UNKNOWN,
        e.OutcomeResolved("not_executed", "ann", "seen", next_attempt_at=AT + 9),
        {
            "status": "queued",
            "in_doubt": False,
            "due_at": AT + 9,
            "policy": "",
            "reason": "",
            "detail": "seen",
            "dispatch_version": 4,
        },
    ),
    (RUNNING, e.Expired(0), {"status": "expired", "started": None, "due_at": None}),
    (RUNNING, e.Cancelled(0), {"status": "cancelled", "started": None, "due_at": None}),
    (RUNNING, e.Updated("cancel_requested"), {"cancel_requested": True}),
    (FAILED, e.Updated("purged"), {"purged": True}),
    (QUEUED, e.Updated("retry", "queued", 1, AT), {"due_at": AT, "dispatch_version": 2}),
    (
        FAILED,
        e.Updated("redrive", "queued", 2, AT, AT + 9),
        {
            "status": "queued",
            "intent": 2,
            "due_at": AT,
            "expires_at": AT + 9,
            "dispatch_version": 4,
            "attempts_before": 1,
            "reopened_at": AT,
            "reason": "",
            "detail": "",
            "first_attempt_at": None,
        },
    ),
    # The same intent: what is unknown and what is running stay as they are.
    (
        RESENDING,
        e.Updated("redrive", "queued", 1, AT),
        {
            "status": "queued",
            "due_at": AT,
            "dispatch_version": 5,
            "attempts_before": 1,
            "reopened_at": AT,
            "reason": "",
        },
    ),
    (
        RESENDING,
        e.Updated("redrive", "queued", 2, AT),
        {
            "status": "queued",
            "intent": 2,
            "due_at": AT,
            "dispatch_version": 5,
            "attempts_before": 1,
            "reopened_at": AT,
            "reason": "",
            "in_doubt": False,
            "started": None,
            "first_attempt_at": None,
        },
    ),
    (FAILED, e.Delivered("r-1", "p-1", T0 + 9), {"delivered_at": T0 + 9, "reports": ("r-1",)}),
    (
        FAILED,
        e.Bounced("r-1", "mailbox_full"),
        {"bounced_at": AT, "bounce": "mailbox_full", "reports": ("r-1",)},
    ),
    (
        FAILED,
        e.Complained("r-1", "abuse"),
        {"complained_at": AT, "complaint": "abuse", "reports": ("r-1",)},
    ),
    # The first of a kind stays.
    (
        evolve(FAILED, e.Bounced("r-1", "no_mailbox", permanent=True), meta(T0 + 700)),
        e.Bounced("r-2", "mailbox_full"),
        {"reports": ("r-1", "r-2")},
    ),
]


@pytest.mark.parametrize(("before", "event", "changes"), CHANGES)
def test_an_event_changes_this_and_nothing_else(
    before: State, event: e.Event, changes: dict[str, object]
):
    assert changed(before, event) == changes


def test_every_event_but_the_first_has_a_fold():
    assert {type(event) for _, event, _ in CHANGES} == set(NOTIFICATION.event_names) - {e.Created}


def test_the_first_event_makes_this_state():
    assert (
        State(
            ID,
            "acme",
            FLOW,
            "queued",
            1,
            T0,
            T0,
            dispatch_version=1,
            due_at=T0 + 500,
            key="order-7",
            correlation_id="correlation-1",
            source="test",
        )
        == QUEUED
    )


def test_a_request_from_before_own_ids_were_on_record_keeps_the_id_of_its_job():
    old = msgspec.json.decode(
        msgspec.json.encode({"id": ID, "flow": FLOW, "payload": {}, "key": ID}), type=e.Created
    )
    assert evolve(None, old, meta(T0)).job_id == job_id(ID, 1)
    own = msgspec.structs.replace(old, own=True)
    assert evolve(None, own, meta(T0)).job_id == own_job_id("acme", FLOW, ID, 1)


def test_a_fold_can_go_on_from_a_state():
    history = [
        (e.AttemptFailed(1, "busy", next_attempt_at=AT), meta(AT)),
        (e.Sent(2, "p-1"), meta(AT)),
    ]
    assert fold(history[1:], fold(history[:1], QUEUED)) == fold(history, QUEUED)
    assert fold([], QUEUED) == QUEUED
    assert fold([]) is None
