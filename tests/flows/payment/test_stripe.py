"""Stripe keeps the gateway contract, and its errors mean what Stripe documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from gesta.domain.money import Money
from gesta.flows.payment.gateway import (
    AccountRefused,
    CallConflicted,
    CallContradicted,
    CallDeclined,
    CallNotFound,
    CallPending,
    CallRefused,
    CallRetry,
    CallSucceeded,
    CallUnknown,
    Connection,
    GatewayAccount,
    GatewayCall,
    Instruction,
    Reference,
    Unrenderable,
    Verb,
    Window,
)
from gesta.flows.payment.stripe import STRIPE, StripeGateway
from gesta.outbound.http import Headers, Http, HttpRequest, HttpResponse
from gesta.runtime.clock import ManualRuntime
from gesta.testing.contracts.gateway import GatewayContract
from tests.flows.payment.stripe_harness import StripeHarness

ID = "01939d3c-0000-7000-8000-000000000001"
EUROS = Money("49.90", "EUR")


class TestStripe(GatewayContract):
    @pytest.fixture
    def harness(self, runtime):
        return StripeHarness(runtime)


class Answers:
    """Answers every call the same, and keeps what was sent."""

    def __init__(self, status: int, answer: object, headers: Mapping[str, str]) -> None:
        self._response = HttpResponse(status, Headers(headers.items()), msgspec.json.encode(answer))
        self.sent: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpResponse:
        self.sent.append(request)
        return self._response

    async def close(self) -> None:
        """Nothing is open."""


def instruction(verb: Verb = "sale", intent: int = 1, **more: Any) -> Instruction:
    fields: dict[str, Any] = {"amount": EUROS, "source": "pm_1"} | more
    reference = Reference("default", "payment.card", ID, verb, intent)
    return Instruction(
        verb=verb, key=f"default:{ID}:{verb}:{intent}", reference=reference, **fields
    )


async def answer_to(
    status: int, error: object, headers: Mapping[str, str] | None = None, verb: Verb = "sale"
) -> Any:
    answers = Answers(status, {"error": error}, headers or {})
    connection = Connection(
        Http(answers, ManualRuntime()),
        "shop",
        GatewayAccount("stripe", "acct_1", ""),
        "sk_test_1",
    )
    call = StripeGateway().render(instruction(verb, target="pi_1"), connection)
    answer = await StripeGateway().execute(call, connection)
    assert len(answers.sent) == 1, "only the engine retries"
    return answer


@pytest.mark.parametrize("code", ["insufficient_funds", "try_again_later", "generic_decline"])
async def test_a_soft_decline_may_succeed_under_a_new_intent(code):
    error = {"type": "card_error", "code": "card_declined", "decline_code": code}
    assert await answer_to(402, error) == CallDeclined(code, soft=True)  # D-16


@pytest.mark.parametrize("code", ["stolen_card", "lost_card", "pickup_card", "expired_card"])
async def test_a_hard_decline_never_succeeds(code):
    error = {"type": "card_error", "code": "card_declined", "decline_code": code}
    assert await answer_to(402, error) == CallDeclined(code, soft=False)


@pytest.mark.parametrize(
    "code",
    ["charge_already_captured", "charge_already_refunded", "payment_intent_unexpected_state"],
)
async def test_an_action_that_was_done_before_is_verified(code):
    error = {"type": "invalid_request_error", "code": code}
    assert await answer_to(400, error, verb="capture") == CallContradicted(code)


async def test_a_key_that_was_used_for_another_call_is_verified():
    error = {"type": "idempotency_error"}
    assert await answer_to(400, error) == CallContradicted("idempotency_error")  # D-15


@pytest.mark.parametrize("status", [400, 404])
async def test_a_call_that_is_wrong_stays_refused(status):
    error = {"type": "invalid_request_error", "code": "resource_missing"}
    answer = await answer_to(status, error)
    assert answer == CallRefused("resource_missing", f"answered {status}: resource_missing")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_stops_the_account(status):
    assert isinstance(await answer_to(status, {}), AccountRefused)  # D-16


async def test_a_running_twin_is_waited_for_with_the_same_key():
    answer = await answer_to(409, {"code": "idempotency_key_in_use"})
    assert isinstance(answer, CallRetry)
    assert answer.in_progress  # D-15


async def test_a_rate_limit_was_before_the_key():
    answer = await answer_to(429, {"code": "rate_limit"}, {"Retry-After": "7"})
    assert (answer.throttled, answer.after_seconds) == (True, 7)  # D-15


@pytest.mark.parametrize("status", [408, 424, 500, 502, 503, 504, 599])
async def test_a_failure_of_the_server_is_unknown(status):
    answer = await answer_to(status, {"type": "api_error"})
    assert isinstance(answer, CallUnknown)  # D-16
    assert not answer.is_stored


@pytest.mark.parametrize(
    "headers", [{"Stripe-Should-Retry": "false"}, {"Idempotent-Replayed": "true"}]
)
async def test_a_stored_failure_says_that_a_resend_is_useless(headers):
    answer = await answer_to(500, {"type": "api_error"}, headers)
    assert answer.is_stored  # D-16


@pytest.fixture
def harness():
    return StripeHarness(ManualRuntime())


@pytest.fixture
def connection(harness):
    http = Http(harness.transport, harness.runtime)
    return Connection(http, "shop", harness.account, harness.api_key)


async def executed(connection: Connection, made: Instruction) -> CallSucceeded:
    answer = await StripeGateway().execute(StripeGateway().render(made, connection), connection)
    assert isinstance(answer, CallSucceeded), answer
    return answer


def form(call: GatewayCall) -> dict[str, list[str]]:
    return parse_qs(call.body.decode(), strict_parsing=True)


async def test_a_card_payment_is_rendered_as_a_payment_intent(connection):
    call = StripeGateway().render(instruction("authorize", description="7"), connection)
    assert call.url == "https://api.stripe.com/v1/payment_intents"
    assert form(call) == {
        "amount": ["4990"],
        "currency": ["eur"],
        "payment_method": ["pm_1"],
        "capture_method": ["manual"],
        "confirm": ["true"],
        "metadata[gesta_reference]": [f"default:payment.card:{ID}:authorize:1"],
        "expand[0]": ["latest_charge"],
        "payment_method_types[0]": ["card"],
        "error_on_requires_action": ["true"],
        "description": ["7"],
    }
    assert call.resend_seconds == 23 * 3_600  # S1-4


async def test_the_version_of_the_api_is_journaled_with_the_call(harness, connection):
    call = StripeGateway().render(instruction(), connection)
    older = msgspec.structs.replace(call, headers={"stripe-version": "2020-08-27"})
    await StripeGateway().execute(older, connection)
    [effect] = harness.fake.effects
    assert effect.headers["stripe-version"] == "2020-08-27"


async def test_no_header_describes_this_machine(harness, connection):
    await executed(connection, instruction())
    [effect] = harness.fake.effects
    assert [name for name in effect.headers if name.startswith("x-stripe")] == []


async def test_a_key_for_tests_never_touches_a_call_of_real_money(harness, connection):
    live = msgspec.structs.replace(connection, api_key="sk_live_1")
    call = StripeGateway().render(instruction(), live)
    assert isinstance(await StripeGateway().execute(call, connection), AccountRefused)
    assert harness.fake.calls == 0


async def test_an_authorization_names_the_last_moment_of_its_capture(harness, connection):
    held = await executed(connection, instruction("authorize"))
    assert held.capture_before == (harness.fake.now + 7 * 86_400) * 1_000


async def test_each_of_several_captures_is_found_with_its_own_amount(connection):
    held = await executed(connection, instruction("authorize"))
    calls = []
    for intent, amount in ((1, "20.00"), (2, "10.00")):
        made = instruction(
            "capture", intent, amount=Money(amount, "EUR"), target=held.id, is_final=False
        )
        await executed(connection, made)
        calls.append(StripeGateway().render(made, connection))
    for call in calls:
        found = await StripeGateway().look_up(call, connection)
        assert isinstance(found, CallSucceeded)
        assert found.amount == call.amount
    third = instruction("capture", 3, target=held.id, is_final=False)
    call = StripeGateway().render(third, connection)
    assert await StripeGateway().look_up(call, connection) == CallNotFound()


async def test_earlier_captures_are_not_taken_for_the_last_one(harness, connection):
    """The authorization ended after the first of two captures: Stripe then says `succeeded`."""
    held = await executed(connection, instruction("authorize"))
    parts = {"amount": Money("20.00", "EUR"), "target": held.id}
    await executed(connection, instruction("capture", 1, is_final=False, **parts))
    intent = harness.fake.books.get("payment_intent", held.id)
    intent["status"], intent["amount_capturable"] = "succeeded", 0
    second = StripeGateway().render(instruction("capture", 2, **parts), connection)
    assert await StripeGateway().look_up(second, connection) == CallNotFound()
    # What was captured beyond ours was captured by hand.
    intent["amount_received"] += 2_000
    assert isinstance(await StripeGateway().look_up(second, connection), CallSucceeded)
    intent["amount_received"] += 1
    assert isinstance(await StripeGateway().look_up(second, connection), CallConflicted)


async def test_a_fresh_payment_is_not_found_until_it_is_visible(harness, connection):
    harness.fake.visible_after_seconds = 60
    await executed(connection, instruction())
    call = StripeGateway().render(instruction(), connection)
    assert await StripeGateway().look_up(call, connection) == CallNotFound()
    harness.fake.advance(60)
    assert isinstance(await StripeGateway().look_up(call, connection), CallSucceeded)


async def test_an_id_from_a_webhook_finds_a_payment_before_it_is_visible(harness, connection):
    harness.fake.visible_after_seconds = 60
    made = await executed(connection, instruction())
    call = StripeGateway().render(instruction(), connection)
    assert isinstance(await StripeGateway().look_up(call, connection, made.id), CallSucceeded)


async def test_an_id_of_another_payment_is_not_taken_for_ours(connection):
    other = await executed(connection, instruction(intent=2))
    call = StripeGateway().render(instruction(intent=1), connection)
    assert await StripeGateway().look_up(call, connection, other.id) == CallNotFound()
    own = await executed(connection, instruction(intent=1))
    found = await StripeGateway().look_up(call, connection, other.id)
    assert isinstance(found, CallSucceeded)
    assert found.id == own.id


async def test_a_payment_that_is_not_there_is_unknown_not_missing(connection):
    call = StripeGateway().render(instruction("capture", target="pi_none"), connection)
    assert isinstance(await StripeGateway().look_up(call, connection), CallUnknown)


async def test_a_voided_payment_that_was_captured_instead_is_a_conflict(connection):
    sold = await executed(connection, instruction())
    void = StripeGateway().render(instruction("void", amount=None, target=sold.id), connection)
    assert isinstance(await StripeGateway().execute(void, connection), CallContradicted)
    found: Any = await StripeGateway().look_up(void, connection)
    assert found.found == EUROS


async def test_a_payment_that_needs_the_customer_is_declined_or_pending(harness, connection):
    made = instruction(source="pm_card_authenticationRequired")
    answer = await StripeGateway().execute(StripeGateway().render(made, connection), connection)
    assert isinstance(answer, CallDeclined)
    assert answer.code == "authentication_required"
    waiting = msgspec.structs.replace(harness.account, options={"on_requires_action": "wait"})
    patient = msgspec.structs.replace(connection, account=waiting)
    made = instruction(intent=2, source="pm_card_authenticationRequired")
    answer = await StripeGateway().execute(StripeGateway().render(made, patient), patient)
    assert isinstance(answer, CallPending)
    assert answer.needs_customer


async def test_a_lost_payout_is_found_by_its_reference(harness, connection):
    await executed(connection, instruction(amount=Money("100.00", "EUR")))
    payout = instruction("payout", source="")
    call = StripeGateway().render(payout, connection)
    assert await StripeGateway().look_up(call, connection) == CallNotFound()
    harness.lose_next()
    assert isinstance(await StripeGateway().execute(call, connection), CallUnknown)
    found = await StripeGateway().look_up(call, connection)
    assert isinstance(found, CallSucceeded)
    rows = (await StripeGateway().list(Window(0, 2**42), connection)).rows
    assert [(row.kind, row.amount) for row in rows] == [
        ("payout", Money("-49.90", "EUR")),
        ("charge", Money("100.00", "EUR")),
    ]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("charge", "charge"),
        ("dispute", "dispute"),
        ("refund_failure", "return"),
        ("charge_failure", "return"),
        ("payout_reversal", "return"),
        ("other_adjustment", "other"),
    ],
)
async def test_rows_of_money_that_stripe_moved_back_are_no_payments(connection, category, kind):
    """A payout that failed later was taken for the payout."""
    about = {"id": "re_1", "object": "refund", "payment_intent": "pi_1", "metadata": {}}
    listed = {
        "id": "txn_1",
        "object": "balance_transaction",
        "type": "adjustment",
        "reporting_category": category,
        "amount": 4_990,
        "fee": 0,
        "currency": "eur",
        "status": "available",
        "created": 1_700_000_000,
        "source": about,
    }
    page = {"object": "list", "data": [listed], "has_more": False}
    http = Http(Answers(200, page, {}), ManualRuntime())
    asked = msgspec.structs.replace(connection, http=http)
    (row,) = (await StripeGateway().list(Window(0, 2**42), asked)).rows
    assert (row.kind, row.payment_id) == (kind, "pi_1")


@pytest.mark.parametrize(
    ("money", "units"),
    [(Money("10.00", "MGA"), 10), (Money("5", "ISK"), 500), (Money("1.230", "KWD"), 1_230)],
)
def test_deviating_currencies_are_counted_as_stripe_counts(money, units):
    assert STRIPE.units_of(money) == units


@pytest.mark.parametrize("currency", ["HUF", "TWD"])
def test_a_payout_has_no_decimals_where_charges_have_them(connection, currency):
    """Stripe would refuse it, after the settlement has claimed its transactions."""
    whole, part = Money("10.00", currency), Money("10.45", currency)
    gateway = StripeGateway()
    assert b"amount=1045" in gateway.render(instruction("sale", amount=part), connection).body
    assert b"amount=1000" in gateway.render(instruction("payout", amount=whole), connection).body
    fractional = instruction("payout", amount=part)
    with pytest.raises(Unrenderable, match=f"only whole amounts of {currency}") as refused:
        gateway.render(fractional, connection)
    assert refused.value.reason == "amount_not_supported"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"api_url": "https://api.stripe.com/v1"}, "api_url"),
        ({"options": {"colour": "blue"}}, "options"),
        ({"options": {"on_requires_action": "hope"}}, "options"),
    ],
)
def test_a_wrong_account_is_refused_with_its_field(change, field):
    account = msgspec.structs.replace(GatewayAccount("stripe", "acct_1", ""), **change)
    assert set(StripeGateway().errors(account)) == {field}
