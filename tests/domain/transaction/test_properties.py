"""Random commands, outcomes, crashes and duplicates never move money twice or too far."""

from __future__ import annotations

import pytest

from gesta.domain import events
from gesta.domain.transaction import decide, evolve, opening
from tests.domain.transaction.bank import Broken, play

SEEDS = 1_500


def test_no_life_of_a_transaction_breaks_a_promise():
    statuses = set[str]()
    by_hand = 0
    for seed in range(SEEDS):
        bank = play(seed)
        statuses.add(bank.state.status)
        by_hand += bank.resolved_by_hand
    # The search reaches every end, or it would show nothing.
    assert statuses >= {"completed", "captured", "failed", "reversed", "cancelled", "expired"}
    assert by_hand > 0


def found(limit: int = SEEDS) -> str:
    for seed in range(limit):
        try:
            play(seed)
        except Broken as broken:
            return str(broken)
    return ""


def test_a_resend_after_the_lifetime_of_the_key_is_found(monkeypatch):
    monkeypatch.setattr(decide, "_key_protects", lambda *_: True)
    assert "double effect" in found()


def test_money_moved_while_an_outcome_is_unknown_is_found(monkeypatch):
    monkeypatch.setattr(opening, "refuse_if_busy", lambda _: None)
    assert found() != ""


def test_a_first_not_found_taken_as_proof_is_found(monkeypatch):
    monkeypatch.setattr(decide, "ABSENT_TIMES", 1)
    absent = decide._absent

    def trusting(state, outcome, command, rules):
        seen = decide._not_executed(state, "lookup", "no trace", command.at)
        return [seen[0], events.Failed("not_executed", state.attempts)] if seen else absent

    monkeypatch.setattr(decide, "_absent", trusting)
    assert "not on record" in found()


def test_a_posting_that_does_not_balance_is_found(monkeypatch):
    broken = evolve.movement

    def lopsided(funds, operation, amount):
        legs = broken(funds, operation, amount)
        return legs[:1] if operation == "refund" else legs

    monkeypatch.setattr(decide, "movement", lopsided)
    with pytest.raises(ValueError, match="sum to"):
        found()
