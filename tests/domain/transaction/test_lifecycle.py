"""The lifecycle of a transaction: states, streams, job types, and what is final."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import (
    Command,
    CommandRefused,
    Create,
    Reconciled,
    RecordOutcome,
    Redrive,
    Resolve,
    Start,
)
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.money import Money
from gesta.domain.outcome import Done, Movement, Rejected, Retry, Unknown
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.domain.transaction import commands as c
from gesta.domain.transaction import events as t
from gesta.domain.transaction.evolve import REPORTS_MAX
from gesta.domain.transaction.funds import funds_of, opening_facts
from gesta.domain.transaction.lifecycle import TRANSACTION
from gesta.domain.transaction.postings import ROUTES, legs, posted, undo
from tests.domain.transaction.bank import RULES

AT = 1_000
META = e.Meta("t", "payment.card", "r", AT, "c", "c")
JOURNAL = {"call": b"c", "key_seconds": 82_800.0, "can_look_up": True, "multiple_captures": True}


class Tx:
    def __init__(self, first: str = "authorization", minor: int = 4990) -> None:
        facts = opening_facts(Money.of_minor(minor, "EUR"), first, "g")
        create = Create("r", "payment.card", b"{}", AT, operation=first, facts=facts)
        (event,) = TRANSACTION.decide(None, create, RULES)
        self.state: State = TRANSACTION.evolve(None, event, META)

    def tell(self, command: Command) -> list[e.Event]:
        events = TRANSACTION.decide(self.state, command, RULES)
        meta = replace(META, occurred_at=getattr(command, "at", None) or AT)
        for event in events:
            self.state = TRANSACTION.evolve(self.state, event, meta)
        return events

    def run(self, outcome: object) -> list[e.Event]:
        self.tell(Start("key", JOURNAL))
        state = self.state
        return self.tell(
            RecordOutcome(
                outcome,  # type: ignore[arg-type]
                state.attempts + 1,
                AT,
                intent=state.intent,
                operation=state.operation,
            )
        )


def done(amount: int | None = None) -> Done:
    return Done("pi_1", movement=Movement(amount))


def test_streams_and_statuses_have_the_names_of_the_contract():
    stream = request_stream("payment.card", "acme", "7")
    assert stream == "payment.card.transaction-acme-7"  # R1-10
    assert request_stream("payment.transfer", "a", "b") == "payment.transfer.transaction-a-b"
    assert lifecycle_of("payment.settlement") is TRANSACTION
    assert {"initiated", "validated", "queued", "completed", "failed", "reversed"} <= set(
        TRANSACTION.statuses
    )  # R1-29
    assert {"authorized", "captured", "expired", "unknown"} <= set(TRANSACTION.statuses)


def test_each_operation_has_a_job_type_of_its_own():
    tx = Tx()
    assert tx.state.job_kind == "execute-authorization"  # R1-38
    tx.run(done())
    tx.tell(c.Capture(AT, 1000, "EUR", is_final=False))
    assert tx.state.job_kind == "execute-capture"  # R1-38
    tx.run(done())
    for command, kind in [
        (c.Refund(AT, 500, "EUR"), "execute-refund"),
        (c.Void(AT), "execute-void"),
        (c.Reverse(AT), "execute-reversal"),
    ]:
        tx.tell(command)
        assert tx.state.job_kind == kind
        tx.run(done())
    assert Tx("sale").state.job_kind == "execute-sale"


def test_a_completion_is_recorded_once_and_no_failure_follows_it():
    tx = Tx("sale")
    tx.run(done())
    assert tx.state.status == "completed"
    for outcome in (done(), Rejected("declined"), Unknown("timeout")):
        repeated = RecordOutcome(outcome, 1, AT, intent=1, operation="sale")
        assert tx.tell(repeated) == []  # R1-31, R1-32
    assert tx.tell(Reconciled(done(), AT, 0.5, "sale", 1)) == []
    assert (tx.state.status, funds_of(tx.state).captured) == ("completed", 4990)


def test_only_what_moved_can_be_reversed():
    tx = Tx()
    with pytest.raises(CommandRefused) as refused:
        tx.tell(c.Reverse(AT))
    assert refused.value.code == "operation_open"  # R1-33
    tx.run(Rejected("declined"))
    assert tx.state.status == "failed"
    with pytest.raises(CommandRefused) as refused:
        tx.tell(c.Reverse(AT))
    assert refused.value.code == "nothing_to_reverse"  # R1-33


def test_a_second_reversal_releases_what_a_capture_kept():
    tx = Tx()
    tx.run(done())
    tx.tell(c.Capture(AT, 1000, "EUR", is_final=False))
    tx.run(done())
    tx.tell(c.Reverse(AT))
    tx.run(done())
    assert (tx.state.status, funds_of(tx.state).refunded) == ("captured", 1000)
    tx.tell(c.Reverse(AT))
    tx.run(done())
    assert (tx.state.status, funds_of(tx.state).released) == ("reversed", 3990)
    assert funds_of(tx.state).balances == {}  # R1-33


def test_asking_for_the_rest_says_when_nothing_is_left():
    """It said that the amount must be above zero, although the caller named none."""
    tx = Tx()
    tx.run(done())
    refusals = {}
    for name, command in (("refund", c.Refund(AT)), ("zero", c.Capture(AT, 0, "EUR"))):
        with pytest.raises(CommandRefused) as refused:
            tx.tell(command)
        refusals[name] = (refused.value.code, str(refused.value))
    assert refusals["refund"] == ("nothing_left", "nothing of it can be refunded")
    assert refusals["zero"][0] == "invalid_amount"


def test_late_evidence_of_a_failed_operation_is_noted_and_moves_nothing():
    tx = Tx()
    tx.run(done())
    tx.tell(c.Capture(AT, 1000, "EUR", is_final=False))
    tx.run(Rejected("declined"))
    tx.tell(c.Capture(AT, 2000, "EUR", is_final=False))
    late = RecordOutcome(done(1000), 2, AT, intent=1, operation="capture")
    assert [type(one).__name__ for one in tx.tell(late)] == ["Conflicted"]
    assert tx.tell(late) == []
    assert funds_of(tx.state).captured == 0


def test_another_amount_than_asked_for_is_left_to_a_person():
    tx = Tx("sale")
    tx.run(done(4991))
    assert (tx.state.status, tx.state.reason) == ("unknown", "amount_mismatch")
    assert tx.state.waits_for_a_person
    with pytest.raises(CommandRefused):
        tx.tell(Redrive(AT, again=True))


def seen(amount: int, currency: str = "EUR") -> Resolve:
    return Resolve("executed", "ada", "the dashboard", "pi_1", AT, amount, currency)


def test_a_person_records_the_amount_that_the_gateway_took_instead():
    """Without it the record and the gateway would differ for ever: a refund of the rest fails."""
    tx = Tx("sale")
    tx.run(Unknown("conflicted", manual=True))
    events = tx.tell(seen(3000))
    assert [type(one) for one in events] == [t.Resolved, t.Completed]
    funds = funds_of(tx.state)
    assert (tx.state.status, funds.captured, funds.refundable) == ("completed", 3000, 3000)
    assert funds.balances == {"payer": -3000, "gateway": 3000}
    # The row of the gateway's ledger is matched from now on, and the call's own answer, which says
    # something else, is noted.
    row = c.Correct("txn_1", "missing_local", "executed", "ledger", "sale", 1, 3000, "pi_1")
    assert tx.tell(row) == []
    late = RecordOutcome(done(4990), 2, AT, intent=1, operation="sale")
    (conflict,) = tx.tell(late)
    assert (type(conflict), tx.tell(late)) == (t.Conflicted, [])
    assert funds_of(tx.state).captured == 3000


@pytest.mark.parametrize(
    ("command", "most", "code"),
    [
        (c.Capture(AT, 2000, "EUR"), 4990, "beyond_authorization"),
        (c.Capture(AT, 2000, "EUR", is_final=False), 4990, "beyond_authorization"),
        (c.Void(AT), 4990, "partial_void"),
        (c.Reverse(AT), 4990, "partial_void"),
    ],
)
def test_the_amount_that_a_person_records_keeps_within_the_authorization(command, most, code):
    tx = Tx()
    tx.run(done())
    tx.tell(command)
    tx.run(Unknown("timeout"))
    before = tx.state
    for wrong in (seen(most + 1), seen(0), seen(-1), seen(most, "USD")):
        with pytest.raises(CommandRefused):
            tx.tell(wrong)
    with pytest.raises(CommandRefused) as refused:
        tx.tell(seen(most + 1))
    assert (refused.value.code, tx.state) == (code, before)
    tx.tell(seen(most))
    funds = funds_of(tx.state)
    assert (funds.captured + funds.released, funds.capturable) == (4990, 0)


def test_the_amount_that_a_person_records_for_a_refund_keeps_within_the_capture():
    for act in (c.Refund(AT, 500, "EUR"), c.Reverse(AT)):
        tx = Tx("sale")
        tx.run(done())
        tx.tell(act)
        tx.run(Unknown("timeout"))
        with pytest.raises(CommandRefused) as refused:
            tx.tell(seen(4991))
        assert refused.value.code == "beyond_capture"
        tx.tell(seen(4000))
        assert (tx.state.status, funds_of(tx.state).refundable) == ("completed", 990)


def test_more_than_was_asked_for_cannot_be_recorded_and_an_amount_needs_a_success():
    for first in ("sale", "authorization"):
        tx = Tx(first)
        tx.run(Unknown("timeout"))
        with pytest.raises(CommandRefused) as refused:
            tx.tell(seen(4991))
        assert refused.value.code == "beyond_request"
        with pytest.raises(CommandRefused) as refused:
            tx.tell(Resolve("rejected", "ada", "the dashboard", at=AT, amount=1, currency="EUR"))
        assert refused.value.code == "invalid_amount"


HOUR_MS = 3_600_000
#: Look-ups find a call an hour after it was made.
SLOW_SEARCH = {**JOURNAL, "visible_seconds": 3_600.0}


def not_found(tx: Tx, at: int) -> e.OutcomeUnknown:
    """A look-up finds nothing; the outcome stays unknown."""
    (event,) = tx.tell(Reconciled(Retry("not_found"), at))
    assert isinstance(event, e.OutcomeUnknown)
    return event


def unanswered(reason: str = "timeout") -> Tx:
    tx = Tx("sale")
    tx.tell(Start("key", SLOW_SEARCH))
    tx.run(Unknown(reason))
    return tx


def test_a_call_that_is_not_found_is_sent_again_while_its_key_protects():
    event = not_found(unanswered(), at=AT + 10_000)
    assert event.policy == "resend"
    assert event.next_at is not None
    assert event.next_at < AT + HOUR_MS  # K-16


def test_a_call_that_is_not_found_is_only_looked_up_once_its_key_is_forgotten():
    event = not_found(unanswered(), at=AT + 24 * HOUR_MS)
    assert event.policy == "reconcile"  # S1-4


def test_a_failure_that_the_gateway_stored_with_the_key_is_looked_up_and_not_repeated():
    tx = unanswered("stored_failure")
    event = not_found(tx, at=AT + 10_000)
    assert (event.policy, event.next_at) == ("reconcile", AT + HOUR_MS)  # S1-4


def test_a_stored_failure_that_no_look_up_finds_fails_and_is_not_sent_again():
    tx = unanswered("stored_failure")
    not_found(tx, at=AT + HOUR_MS)
    events = tx.tell(Reconciled(Retry("not_found"), AT + 2 * HOUR_MS))
    assert [type(one) for one in events] == [t.Resolved, e.Failed]
    state = tx.state
    assert (state.status, state.reason, state.wants) == ("failed", "not_executed", None)  # S1-4
    # A new charge needs a new key, and so a command.
    tx.tell(Redrive(AT + 2 * HOUR_MS))
    assert (tx.state.wants, tx.state.intent) == ("execute", 2)


def test_a_look_up_before_the_gateway_can_see_the_call_does_not_count():
    """A new key after one blind look-up and one that saw nothing could charge twice."""
    tx = unanswered("stored_failure")
    not_found(tx, at=AT + 10_000)
    event = not_found(tx, at=AT + HOUR_MS)  # S1-4
    assert event.next_at is not None
    assert event.next_at > AT + HOUR_MS
    assert isinstance(tx.tell(Reconciled(Retry("not_found"), event.next_at))[-1], e.Failed)


def test_a_stored_failure_without_look_ups_is_given_to_a_person():
    tx = Tx("sale")
    tx.tell(Start("key", {**JOURNAL, "can_look_up": False}))
    tx.run(Unknown("stored_failure"))
    assert tx.state.waits_for_a_person  # S1-4


def test_a_stored_failure_is_not_sent_again_after_a_look_up_that_failed():
    tx = unanswered("stored_failure")
    (event,) = tx.tell(Reconciled(Unknown("gateway_down"), AT + 10_000))
    assert isinstance(event, e.OutcomeUnknown)
    assert event.policy == "reconcile"  # S1-4


def never_answered(seed: int) -> tuple[Tx, int]:
    """The end of a sale and its calls. The key protects for a year, and no answer is clear."""
    dice, calls, now = Random(seed), 0, AT
    usual = dice.choice(["stored_failure", "timeout", "http_503"])
    journal = {**JOURNAL, "key_seconds": 365 * 86_400.0, "visible_seconds": dice.choice([0, 60.0])}
    tx = Tx("sale")
    while tx.state.wants is not None and calls <= RULES.asking.attempts:
        now = max(now + 1, tx.state.due_at or 0)
        if tx.state.wants == "reconcile":
            answer = Retry("not_found") if dice.random() < 0.9 else Unknown("gateway_down")
            tx.tell(Reconciled(answer, now, dice.random()))
            continue
        tx.tell(Start("key", journal))
        calls += 1
        reason = usual if dice.random() < 0.9 else "timeout"
        number = tx.state.attempts + 1
        tx.tell(RecordOutcome(Unknown(reason), number, now, intent=1, operation="sale"))
    return tx, calls


def test_no_behaviour_of_a_gateway_makes_a_call_repeat_without_end():
    for seed in range(200):
        tx, calls = never_answered(seed)
        assert calls <= RULES.asking.attempts, seed
        assert tx.state.waits_for_a_person or tx.state.status == "failed", seed


def test_a_row_of_the_gateways_ledger_corrects_a_failed_charge_once():
    tx = Tx("sale")
    tx.run(Rejected("declined"))
    row = c.Correct("txn_1", "missing_local", "executed", "ledger", "sale", 1, 4990, "pi_1")
    assert [type(one).__name__ for one in tx.tell(row)] == ["Corrected"]  # R1-40
    assert (tx.state.status, tx.tell(row)) == ("completed", [])
    other = c.Correct("txn_2", "amount", "executed", "ledger", "sale", 1, 5000, "pi_1")
    assert [type(one).__name__ for one in tx.tell(other)] == ["Conflicted"]
    assert funds_of(tx.state).captured == 4990


def test_a_row_of_the_gateways_ledger_ends_the_operation_that_is_still_running():
    """Its call is slow, so reconciliation sees the charge before the worker does."""
    tx = Tx("sale")
    tx.tell(Start("key", JOURNAL))
    row = c.Correct("txn_1", "missing_local", "executed", "ledger", "sale", 1, 4990, "pi_1")
    assert [type(one).__name__ for one in tx.tell(row)] == ["Completed"]
    assert (tx.state.status, tx.state.wants) == ("completed", None)
    assert tx.tell(RecordOutcome(done(), 1, AT, intent=1, operation="sale")) == []
    tx.tell(c.Refund(AT, 500, "EUR"))
    assert tx.state.operation == "refund"


def test_a_row_with_another_amount_than_the_unknown_call_is_left_to_a_person_once():
    tx = Tx("sale")
    tx.run(Unknown("timeout"))
    row = c.Correct("txn_1", "missing_local", "executed", "ledger", "sale", 1, 5000, "pi_1")
    names = [type(one).__name__ for one in tx.tell(row)]
    assert names == ["Conflicted", "OutcomeUnknown"]
    assert tx.state.waits_for_a_person
    assert tx.tell(row) == []  # R1-40


def test_a_redriven_payment_learns_no_id_of_the_payment_before_it():
    """Each intent is a payment of its own at the gateway, and its webhooks come at any time."""
    tx = Tx()
    tx.run(Rejected("declined"))
    failed = c.NoteWebhook("evt_1", "failed", AT, "pi_0", operation="authorization", intent=1)
    tx.tell(failed)
    assert funds_of(tx.state).payment_id == "pi_0"
    tx.tell(Redrive(AT))
    assert funds_of(tx.state).payment_id == ""
    late = c.NoteWebhook("evt_2", "failed", AT, "pi_0", operation="authorization", intent=1)
    tx.tell(late)
    assert funds_of(tx.state).payment_id == ""
    tx.run(done())
    assert funds_of(tx.state).payment_id == "pi_1"


def webhook(number: int) -> c.NoteWebhook:
    return c.NoteWebhook(f"evt_{number}", "x", AT, "pi_1", operation="sale", intent=1)


def test_a_webhook_that_was_forgotten_and_comes_again_moves_nothing():
    """A transaction remembers the last 200; a gateway repeats one for days."""
    for outcome, wants in ((done(), None), (Rejected("declined"), None), (Unknown("x"), "ask")):
        tx = Tx("sale")
        tx.run(outcome)
        before = tx.state
        for number in range(REPORTS_MAX + 1):
            assert len(tx.tell(webhook(number))) == 1
            assert tx.tell(webhook(number)) == []
        assert [type(one) for one in tx.tell(webhook(0))] == [t.GatewayNotified]
        after = tx.state
        assert (after.status, after.intent) == (before.status, before.intent)
        assert replace(funds_of(after), payment_id="") == replace(funds_of(before), payment_id="")
        # It can lead to a question, never to a call.
        assert after.wants == ("reconcile" if wants else None)


def test_a_row_of_a_reversal_that_was_given_up_is_a_refund():
    tx = Tx("sale")
    tx.run(done())
    tx.tell(c.Reverse(AT))
    tx.run(Rejected("declined"))
    tx.tell(c.Refund(AT, 1000, "EUR"))
    tx.run(Rejected("declined"))
    row = c.Correct("txn_1", "status", "executed", "ledger", "reversal", 1, 3000, "pi_1")
    assert [type(one).__name__ for one in tx.tell(row)] == ["Corrected"]
    funds = funds_of(tx.state)
    assert (funds.refunded, funds.authorized) == (3000, 4990)
    assert funds.balances == {"payer": -1990, "gateway": 1990}


@pytest.mark.parametrize("kind", ROUTES)
def test_every_posting_sums_to_zero(kind):
    assert sum(minor for _, minor in legs(kind, 4990)) == 0
    assert posted(posted({}, legs(kind, 4990)), undo(kind, 4990)) == {}
    with pytest.raises(ValueError, match="sum to"):
        posted({}, (("payer", 1),))
