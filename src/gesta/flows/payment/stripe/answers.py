"""What Stripe's objects and errors mean for a call.

Every amount is compared with what was asked for: a 2xx with another amount is a conflict, and an
object that cannot be read is unknown. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gesta.domain.money import InvalidMoney, Money
from gesta.domain.outcome import Outcome, Rejected, Retry
from gesta.flows.payment.descriptor import AmountNotSupported, GatewayDescriptor
from gesta.flows.payment.gateway import (
    AccountRefused,
    CallAnswer,
    CallConflicted,
    CallContradicted,
    CallDeclined,
    CallNotFound,
    CallPending,
    CallRefused,
    CallRetry,
    CallSucceeded,
    CallUnknown,
    GatewayCall,
)
from gesta.outbound.http import status_reason

if TYPE_CHECKING:
    from stripe import StripeError

STRIPE: Final = GatewayDescriptor(
    type="stripe",
    key_lifetime_seconds=24 * 3_600,
    replays="all",
    body_mismatch="error",
    look_up_by=("reference", "id"),
    # Stripe's search is normally behind by less than a minute, and by up to an hour in an outage.
    visible_after_seconds=3_600,
    has_fake=True,
    verbs=frozenset({"authorize", "sale", "capture", "void", "refund", "payout"}),
    multiple_captures=True,
    exponents={"MGA": 0, "ISK": 2, "UGX": 2},
    steps={"ISK": 100, "UGX": 100, "BHD": 10, "JOD": 10, "KWD": 10, "OMR": 10, "TND": 10},
)
#: Currency → a payout must be a multiple of this in Stripe's units: it has no decimals there.
PAYOUT_STEPS: Final = {"HUF": 100, "TWD": 100}
#: Seconds to wait after a rate limit without Retry-After.
THROTTLED_SECONDS: Final = 5.0
#: Seconds to wait while an earlier call with the same key is still running.
BUSY_SECONDS: Final = 2.0
#: Declines after which the same card may succeed another day.
SOFT_DECLINES: Final = frozenset(
    """approve_with_id authentication_required call_issuer card_velocity_exceeded do_not_honor
    generic_decline insufficient_funds issuer_not_available no_action_taken
    not_permitted processing_error reenter_transaction service_not_allowed try_again_later
    withdrawal_count_limit_exceeded""".split()
)
#: Errors that say: it is done already, or in another state than we believe.
CONTRADICTIONS: Final = frozenset(
    """charge_already_captured charge_already_refunded charge_expired_for_capture
    payment_intent_unexpected_state""".split()
)

#: How the names of our captures begin in the metadata of a payment intent.
_CAPTURES: Final = ("gesta_capture_", "gesta_posting_")
_AUTHORIZED: Final = frozenset({"requires_capture", "succeeded"})
_PAID_OUT: Final = frozenset({"pending", "in_transit", "paid"})


def answer_to(error: StripeError, after: float) -> CallAnswer:
    """The meaning of an answer that is not a success. `after`: seconds, from Retry-After."""
    status, code = error.http_status or 0, _code_of(error)
    headers: Mapping[str, str] = error.headers or {}
    detail = f"answered {status}{code and ': '}{code}"
    kind = type(error).__name__
    if status == 429 or kind == "RateLimitError":
        return CallRetry(code or "http_429", detail, after or THROTTLED_SECONDS, throttled=True)
    if status == 409:
        return CallRetry(code or "http_409", detail, after or BUSY_SECONDS, in_progress=True)
    if status in (401, 403):
        return AccountRefused(status_reason(status), detail)
    if kind == "IdempotencyError":
        return CallContradicted("idempotency_error")
    if status == 402:
        return _declined(error)
    if code in CONTRADICTIONS:
        return CallContradicted(code)
    if 400 <= status < 500 and status not in (408, 424):
        return CallRefused(code or status_reason(status), detail)
    # Execution began, or may have. Stripe repeats a stored failure for as long as it knows the key.
    is_stored = "false" in headers.get("stripe-should-retry", "") or (
        headers.get("idempotent-replayed") == "true"
    )
    return CallUnknown(status_reason(status), detail, after, is_stored=is_stored)


def answer_without(outcome: Outcome) -> CallRetry | CallUnknown | CallRefused:
    """The meaning of a missing answer, by how the exchange ended."""
    match outcome:
        case Retry(reason, detail, after_seconds):
            return CallRetry(reason, detail, after_seconds)
        case Rejected(reason, detail):
            return CallRefused(reason, detail)
        case _:
            return CallUnknown(getattr(outcome, "reason", "bad_answer"), outcome.detail)


def answer_of(found: Mapping[str, Any], call: GatewayCall) -> CallAnswer | CallNotFound:
    """What Stripe has recorded about a call: a payment intent, a refund or a payout."""
    try:
        match call.verb:
            case "authorize" | "sale":
                return _created(found, call)
            case "capture":
                return _captured(found, call)
            case "void":
                return _voided(found)
            case "refund":
                return _refunded(found, call)
            case "payout":
                return _paid_out(found, call)
    except (KeyError, TypeError, AttributeError, AmountNotSupported, InvalidMoney):
        return CallUnknown("bad_answer", "Stripe answered with an object that cannot be read")


def money_in(found: Mapping[str, Any], name: str) -> Money:
    units = found[name]
    if type(units) is not int:
        raise TypeError(name)
    return STRIPE.money_of(units, found["currency"])


def _created(intent: Mapping[str, Any], call: GatewayCall) -> CallAnswer:
    status = intent["status"]
    if status in ("processing", "requires_action", "requires_confirmation"):
        return CallPending(intent["id"], status, needs_customer=status == "requires_action")
    if status == "requires_payment_method":
        error = intent.get("last_payment_error") or {}
        code = error.get("decline_code") or error.get("code") or status
        return CallDeclined(code, code in SOFT_DECLINES, intent["id"])
    if status == "canceled":
        return CallDeclined("canceled", soft=False, id=intent["id"])
    if status not in _AUTHORIZED or (call.verb == "sale" and status != "succeeded"):
        return CallUnknown("bad_answer", "Stripe answered with a status that is not known")
    # An authorization that was captured since then has moved its amount.
    found = money_in(intent, "amount_received" if call.verb == "sale" else "amount")
    return _compared(intent, found, call)


def _captured(intent: Mapping[str, Any], call: GatewayCall) -> CallAnswer | CallNotFound:
    captures = {
        name: STRIPE.money_of(int(text.partition(" ")[0]), intent["currency"])
        for name, text in intent.get("metadata", {}).items()
        if name.startswith(_CAPTURES)
    }
    if (ours := captures.get(marker_of(call))) is not None:
        # One of several captures: the marker was set together with it, and states its amount.
        return _compared(intent, ours, call)
    if intent["status"] == "requires_capture":
        return CallNotFound()
    if intent["status"] == "canceled":
        return CallDeclined("canceled", soft=False, id=intent["id"])
    others = sum(captured.minor for captured in captures.values())
    left = money_in(intent, "amount_received").minor - others
    if captures and left == 0:
        # The authorization ended after our earlier captures.
        return CallNotFound()
    return _compared(intent, Money.of_minor(left, intent["currency"].upper()), call)


def _voided(intent: Mapping[str, Any]) -> CallAnswer | CallNotFound:
    if intent["status"] == "canceled":
        return CallSucceeded(intent["id"], money_in(intent, "amount"))
    if intent["status"] == "succeeded":
        return CallConflicted(intent["id"], money_in(intent, "amount_received"))
    return CallNotFound()


def _refunded(refund: Mapping[str, Any], call: GatewayCall) -> CallAnswer:
    payment, name = refund.get("payment_intent") or call.target, refund["id"]
    match refund["status"]:
        case "succeeded":
            return _compared({"id": payment}, money_in(refund, "amount"), call, name)
        case "pending" | "requires_action":
            return CallPending(name, refund["status"])
        case "failed" | "canceled":
            reason = refund.get("failure_reason") or refund["status"]
            return CallDeclined(reason, soft=False, id=name)
        case _:
            return CallUnknown("bad_answer", "Stripe answered with a status that is not known")


def _paid_out(payout: Mapping[str, Any], call: GatewayCall) -> CallAnswer:
    if payout["status"] not in _PAID_OUT:
        reason = payout.get("failure_code") or payout["status"]
        return CallDeclined(reason, soft=False, id=payout["id"])
    return _compared(payout, money_in(payout, "amount"), call, payout["id"])


def _compared(
    payment: Mapping[str, Any], found: Money, call: GatewayCall, movement: str = ""
) -> CallSucceeded | CallConflicted:
    charge = payment.get("latest_charge")
    before = None
    if isinstance(charge, dict):
        card = (charge.get("payment_method_details") or {}).get("card") or {}
        before = card.get("capture_before") if call.verb == "authorize" else None
        charge = charge["id"]
    name = movement or charge or ""
    if found != call.amount:
        return CallConflicted(payment["id"], found, name)
    before_ms = before * 1_000 if isinstance(before, int) else None
    return CallSucceeded(payment["id"], found, name, before_ms)


def _declined(error: StripeError) -> CallDeclined:
    body = error.json_body
    inner = body.get("error") if isinstance(body, dict) else None
    found = inner if isinstance(inner, dict) else {}
    code = str(found.get("decline_code") or found.get("code") or "card_declined")
    intent = found.get("payment_intent")
    name = intent.get("id", "") if isinstance(intent, dict) else ""
    return CallDeclined(code, code in SOFT_DECLINES, name)


def marker_of(call: GatewayCall) -> str:
    """The name in the metadata of a payment intent by which a capture of ours is recognised."""
    return f"gesta_{call.reference.operation}_{call.reference.intent}"


def _code_of(error: StripeError) -> str:
    body = error.json_body
    inner = body.get("error") if isinstance(body, dict) else None
    code = inner.get("code") if isinstance(inner, dict) else None
    return code if isinstance(code, str) and code.replace("_", "").isalnum() else ""
