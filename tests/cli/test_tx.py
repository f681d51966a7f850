"""gesta tx: every command, on one file, with an engine that executes what they open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed_rules

from gesta import Engine
from gesta.domain.state import State
from gesta.engine.environment import Environment, Wiring, wire_really
from gesta.flows import card, transfer
from gesta.runtime.settings import Settings
from gesta.sandbox import Sandbox, SandboxTransport
from tests.cli.running import Cli


def test_a_transaction_can_be_shown_and_not_captured_before_its_authorization_has_ended(cli):
    made = cli(
        "tx",
        "authorize",
        "49.90 EUR",
        "--source",
        "pm_1",
        "--gateway",
        "eu",
        "--key",
        "o-7",
        "--json",
    )
    assert made.code == 0, made.err
    shown = cli("tx", "show", "o-7", "--json").json
    assert (shown["status"], shown["requested"]["amount"]) == ("queued", "49.90")
    refused = cli("tx", "capture", "o-7", "--key", "c-1", "--amount", "20.00 EUR")
    assert refused.code != 0
    assert "still being executed" in refused.err
    wrong = cli("tx", "capture", "o-7", "--key", "c-1", "--amount", "20.001 EUR")
    assert wrong.code == 2
    assert "EUR has 2 digits" in " ".join(wrong.err.split())
    assert "no transaction waits" in cli("tx", "unknown").err


class Bank:
    """The fake of Stripe, and an engine that works until every transaction has come to rest."""

    def __init__(self, cli: Cli) -> None:
        self.sandbox, self._cli = Sandbox(), cli
        #: Of an unknown outcome, at the gateway.
        self.ask_after_seconds = 5.0
        fields = ("type=stripe", "account=acct_1", "api_key=sk_test_1")
        assert cli("config", "put", "payment.gateway", "default", *fields).code == 0

    def tx(self, *arguments: str) -> Any:
        """Run a command, let what it opened be executed, and show the transaction."""
        answer = self._cli("tx", *arguments, "--json")
        assert answer.code == 0, answer.err
        self.work(answer.json["id"])
        return self._cli("tx", "show", answer.json["id"], "--json").json

    def work(self, request_id: str, *, is_over: Callable[[State], bool] | None = None) -> None:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(Wiring, "wire", staticmethod(self._wire))
            asyncio.run(self._until(request_id, is_over or (lambda state: state.phase != "open")))

    async def _wire(self, chosen: Settings) -> Environment:
        environment = await wire_really(chosen)
        await environment.transport.close()
        return replace(environment, transport=SandboxTransport(environment.runtime, self.sandbox))

    async def _until(self, request_id: str, is_over: Callable[[State], bool]) -> None:
        cards = card.flow()
        rules = changed_rules(cards.rules, ask_after_seconds=self.ask_after_seconds)
        flows = [replace(cards, rules=rules), transfer.flow()]
        async with Engine("sqlite:///gesta.db", flows=flows) as engine, asyncio.timeout(20):
            request = await engine.request(request_id)
            while not is_over((await request.view()).state):
                await asyncio.sleep(0.01)


@pytest.fixture
def bank(cli: Cli) -> Bank:
    return Bank(cli)


def test_an_authorization_is_captured_and_refunded_in_parts_and_then_reversed(cli, bank):
    made = bank.tx("authorize", "49.90 EUR", "--source", "pm_1", "--key", "o-7")
    assert (made["status"], made["capturable"]["amount"]) == ("authorized", "49.90")
    made = bank.tx("capture", "o-7", "--key", "c-1", "--amount", "20.00 EUR", "--keep-rest")
    assert (made["captured"]["amount"], made["capturable"]["amount"]) == ("20.00", "29.90")
    made = bank.tx("capture", "o-7", "--key", "c-2", "--amount", "9.90 EUR")
    assert (made["captured"]["amount"], made["released"]["amount"]) == ("29.90", "20.00")
    made = bank.tx("refund", "o-7", "--key", "r-1", "--amount", "0.90 EUR")
    assert (made["status"], made["refunded"]["amount"]) == ("captured", "0.90")
    again = bank.tx("refund", "o-7", "--key", "r-1", "--amount", "0.90 EUR")
    assert again == made
    made = bank.tx("reverse", "o-7", "--by", "ada")
    assert (made["status"], made["refunded"]["amount"]) == ("reversed", "29.90")
    kinds = [one.type for one in bank.sandbox.stripe.effects]
    assert kinds == ["authorize", "capture", "capture", "refund", "refund"]


def test_an_authorization_is_voided_and_a_sale_takes_the_amount_at_once(cli, bank):
    bank.tx("authorize", "49.90 EUR", "--source", "pm_1", "--key", "o-1")
    assert bank.tx("void", "o-1")["status"] == "cancelled"
    made = bank.tx("authorize", "5.00 EUR", "--source", "pm_1", "--key", "o-2", "--sale")
    assert (made["status"], made["captured"]["amount"]) == ("completed", "5.00")
    shown = cli("tx", "show", "o-2")
    assert "captured     5.00 EUR" in shown.out
    refused = cli("tx", "void", "o-2")
    assert refused.code != 0
    assert len(bank.sandbox.stripe.effects) == 3


def test_a_reservation_is_posted(cli, bank):
    payload = (
        '{"amount": {"amount": "49.90", "currency": "EUR"}, "source": "pm_1",'
        ' "destination": "acct_2", "operation": "reserve"}'
    )
    made = cli("submit", "payment.transfer", payload, "--key", "t-1", "--json")
    assert made.code == 0, made.err
    bank.work(made.json["id"])
    shown = bank.tx("post", "t-1", "--key", "p-1", "--amount", "20.00 EUR")
    assert (shown["captured"]["amount"], shown["released"]["amount"]) == ("20.00", "29.90")


def test_an_unknown_transaction_is_listed_with_its_amount_and_resolved_with_evidence(cli, bank):
    bank.sandbox.stripe.next(drop=True)
    made = bank.tx("authorize", "49.90 EUR", "--source", "pm_1", "--key", "o-1")
    assert (made["status"], made["unknown"]["amount"]) == ("unknown", "49.90")
    refused = cli("tx", "capture", "o-1", "--key", "c-1")
    assert refused.code != 0
    assert "no further operation can start" in " ".join(refused.err.split())
    # It is being looked up, so it does not wait for a person yet; one who knows may resolve it.
    assert "no transaction waits" in cli("tx", "unknown").err
    resolved = cli("resolve", "o-1", "--succeeded", "--evidence", "pi_1 in the dashboard")
    assert resolved.code == 0, resolved.err
    assert cli("tx", "show", "o-1", "--json").json["status"] == "authorized"


def test_a_person_records_another_amount_than_was_asked_for(cli, bank):
    bank.sandbox.stripe.next(drop=True)
    bank.tx("authorize", "49.90 EUR", "--source", "pm_1", "--key", "o-1", "--sale")
    found = ("resolve", "o-1", "--succeeded", "--evidence", "ch_1 in the dashboard")
    for wrong, text in (("49.91 EUR", "is more than"), ("30.00 USD", "is in EUR")):
        refused = cli(*found, "--amount", wrong)
        assert refused.code != 0
        assert text in " ".join(refused.err.split())
    many = cli("resolve", "--flow", "payment.card", *found[2:], "--amount", "30.00 EUR")
    assert (many.code, "need an ID" in many.err) == (2, True)
    assert cli(*found, "--amount", "30.00 EUR").code == 0
    shown = cli("tx", "show", "o-1", "--json").json
    assert (shown["status"], shown["captured"]["amount"]) == ("completed", "30.00")


def test_a_transaction_that_waits_for_a_person_is_listed_with_amount_and_age(cli, bank):
    bank.tx("authorize", "49.90 EUR", "--source", "pm_1", "--key", "o-1")
    bank.sandbox.stripe.next(drop=True)
    bank.ask_after_seconds = 1.0
    made = bank.tx("capture", "o-1", "--key", "c-1")
    # Another account behind the same code: the journalled call belongs to the first one.
    fields = ("type=stripe", "account=acct_2", "api_key=sk_test_2")
    assert cli("config", "put", "payment.gateway", "default", *fields).code == 0
    bank.work(made["id"], is_over=lambda state: state.waits_for_a_person)
    listed = cli("tx", "unknown")
    assert listed.code == 0
    for part in ("capture", "49.90 EUR", " s ", "account_changed"):
        assert part in listed.out
    (item,) = cli("tx", "unknown", "--json").items
    assert (item["unknown"], item["reason"]) == (
        {"amount": "49.90", "currency": "EUR"},
        "account_changed",
    )
