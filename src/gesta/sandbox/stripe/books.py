"""The fake's payments: intents, charges, refunds, payouts, and the ledger of what they moved."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

#: Stripe's fee for a captured charge: 2.9 % and 30 units.
FEE_BASIS_POINTS: Final = 290
FEE_UNITS: Final = 30
#: A charge can be captured for seven days.
CAPTURE_SECONDS: Final = 7 * 86_400
#: A movement is pending for two days, then available.
AVAILABLE_SECONDS: Final = 2 * 86_400

#: Means of payment that do not simply succeed → (error code, decline code).
DECLINES: Final = {
    "chargeDeclined": ("card_declined", "generic_decline"),
    "chargeDeclinedInsufficientFunds": ("card_declined", "insufficient_funds"),
    "chargeDeclinedLostCard": ("card_declined", "lost_card"),
    "chargeDeclinedStolenCard": ("card_declined", "stolen_card"),
    "chargeDeclinedExpiredCard": ("expired_card", "expired_card"),
    "chargeDeclinedIncorrectCvc": ("incorrect_cvc", "incorrect_cvc"),
    "chargeDeclinedProcessingError": ("processing_error", "processing_error"),
}


class StripeRefusal(Exception):
    """An answer that is no success. `extra` are further fields of its error object."""

    def __init__(self, status: int, code: str, text: str, **extra: Any) -> None:
        super().__init__(text)
        self.status, self.code, self.extra = status, code, extra


def missing(kind: str, name: str) -> StripeRefusal:
    return StripeRefusal(404, "resource_missing", f"No such {kind}: '{name}'")


@dataclass
class Books:
    """Every object by its id. Amounts are in Stripe's units; times are epoch seconds."""

    #: The account that the fake plays; part of its ids, so that two fakes never share one.
    account: str = "acct_sandbox"
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Balance transactions, oldest first.
    ledger: list[dict[str, Any]] = field(default_factory=list)
    #: Events, oldest first; webhooks carry them.
    events: list[dict[str, Any]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        return (one for one in self.objects.values() if one["object"] == kind)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.objects.get(name)
        if found is None or found["object"] != kind:
            raise missing(kind, name)
        return found

    # Payment intents

    def create_intent(self, sent: dict[str, Any], now: int) -> dict[str, Any]:
        amount = _required_amount(sent)
        intent: dict[str, Any] = {
            "id": self._id("pi"),
            "object": "payment_intent",
            "amount": amount,
            "amount_capturable": 0,
            "amount_received": 0,
            "currency": _currency(sent),
            "capture_method": sent.get("capture_method", "automatic"),
            "created": now,
            "description": sent.get("description"),
            "metadata": dict(sent.get("metadata", {})),
            "payment_method": sent.get("payment_method"),
            "status": "requires_confirmation",
            "latest_charge": None,
            "last_payment_error": None,
            "livemode": False,
        }
        self.objects[intent["id"]] = intent
        self._emit("payment_intent.created", intent, now)
        if sent.get("confirm") == "true":
            self.confirm(intent, sent, now)
        return intent

    def confirm(self, intent: dict[str, Any], sent: dict[str, Any], now: int) -> None:
        how = str(intent["payment_method"] or "").removeprefix("pm_card_").removeprefix("tok_")
        if how == "authenticationRequired" and sent.get("error_on_requires_action") == "true":
            intent["status"] = "requires_payment_method"
            error = _decline("authentication_required", "authentication_required", "")
            error.extra["payment_intent"] = intent
            raise error
        if how == "authenticationRequired":
            intent["status"] = "requires_action"
            self._emit("payment_intent.requires_action", intent, now)
            return
        charge = self._charge(intent, now, declined=how in DECLINES)
        intent["latest_charge"] = charge["id"]
        if how in DECLINES:
            error = _decline(*DECLINES[how], charge["id"])
            intent["status"] = "requires_payment_method"
            intent["last_payment_error"] = error.extra | {"code": error.code, "type": "card_error"}
            self._emit("payment_intent.payment_failed", intent, now)
            error.extra["payment_intent"] = intent
            raise error
        if intent["capture_method"] == "manual":
            intent["status"] = "requires_capture"
            intent["amount_capturable"] = intent["amount"]
            self._emit("payment_intent.amount_capturable_updated", intent, now)
            return
        self._capture(charge, charge["amount"], now)
        intent["status"] = "succeeded"
        intent["amount_received"] = intent["amount"]
        self._emit("payment_intent.succeeded", intent, now)

    def capture_intent(self, name: str, sent: dict[str, Any], now: int) -> dict[str, Any]:
        intent = self.get("payment_intent", name)
        self.expire(intent, now)
        if intent["status"] != "requires_capture":
            raise _unexpected_state("captured", intent)
        asked = _amount(sent, "amount_to_capture")
        amount = intent["amount_capturable"] if asked is None else asked
        if amount > intent["amount_capturable"]:
            raise StripeRefusal(
                400, "amount_too_large", "The capture is larger than the authorization."
            )
        charge = self.objects[intent["latest_charge"]]
        is_final = sent.get("final_capture", "true") == "true"
        self._capture(charge, amount, now)
        intent["metadata"] |= sent.get("metadata", {})
        intent["amount_received"] += amount
        left = intent["amount_capturable"] - amount
        intent["amount_capturable"] = 0 if is_final else left
        if not intent["amount_capturable"]:
            intent["status"] = "succeeded"
        self._emit("charge.captured", charge, now)
        if intent["status"] == "succeeded":
            self._emit("payment_intent.succeeded", intent, now)
        return intent

    def cancel_intent(self, name: str, now: int, reason: str | None = None) -> dict[str, Any]:
        intent = self.get("payment_intent", name)
        self.expire(intent, now)
        if intent["status"] in ("succeeded", "canceled"):
            raise _unexpected_state("canceled", intent)
        intent["status"], intent["amount_capturable"] = "canceled", 0
        intent["canceled_at"], intent["cancellation_reason"] = now, reason
        self._emit("payment_intent.canceled", intent, now)
        return intent

    def expire(self, intent: dict[str, Any], now: int) -> None:
        """An authorization that was not captured in time is void."""
        if intent["status"] == "requires_capture" and now >= intent["created"] + CAPTURE_SECONDS:
            intent["status"], intent["amount_capturable"] = "canceled", 0
            intent["cancellation_reason"] = "expired"
            self._emit("payment_intent.canceled", intent, now)

    # Charges

    def create_charge(self, sent: dict[str, Any], now: int) -> dict[str, Any]:
        amount = _required_amount(sent)
        how = str(sent.get("source", "")).removeprefix("tok_")
        of: dict[str, Any] = {"id": None, "amount": amount, "currency": _currency(sent)}
        of["metadata"] = dict(sent.get("metadata", {}))
        charge = self._charge(of, now, declined=how in DECLINES)
        if how in DECLINES:
            raise _decline(*DECLINES[how], charge["id"])
        if sent.get("capture", "true") == "true":
            self._capture(charge, amount, now)
        return charge

    def capture_charge(self, name: str, sent: dict[str, Any], now: int) -> dict[str, Any]:
        charge = self.get("charge", name)
        if charge["captured"]:
            raise StripeRefusal(
                400, "charge_already_captured", f"Charge {name} has already been captured."
            )
        asked = _amount(sent, "amount")
        amount = charge["amount"] if asked is None else asked
        if amount > charge["amount"]:
            raise StripeRefusal(400, "amount_too_large", "Amount is larger than the charge.")
        self._capture(charge, amount, now)
        charge["amount_refunded"] = charge["amount"] - amount
        return charge

    def _charge(self, of: dict[str, Any], now: int, *, declined: bool) -> dict[str, Any]:
        charge: dict[str, Any] = {
            "id": self._id("ch"),
            "object": "charge",
            "amount": of["amount"],
            "amount_captured": 0,
            "amount_refunded": 0,
            "captured": False,
            "currency": of["currency"],
            "created": now,
            "metadata": dict(of["metadata"]),
            "payment_intent": of["id"],
            "paid": not declined,
            "refunded": False,
            "status": "failed" if declined else "succeeded",
            "balance_transaction": None,
            "payment_method_details": {
                "type": "card",
                "card": {"brand": "visa", "capture_before": now + CAPTURE_SECONDS},
            },
        }
        self.objects[charge["id"]] = charge
        return charge

    def _capture(self, charge: dict[str, Any], amount: int, now: int) -> None:
        charge["captured"] = True
        charge["amount_captured"] += amount
        fee = amount * FEE_BASIS_POINTS // 10_000 + FEE_UNITS
        charge["balance_transaction"] = self.post("charge", charge, amount, fee, now)["id"]

    # Refunds and payouts

    def create_refund(self, sent: dict[str, Any], now: int) -> dict[str, Any]:
        name = sent.get("charge") or ""
        if intent_name := sent.get("payment_intent"):
            intent = self.get("payment_intent", intent_name)
            name = intent["latest_charge"] or ""
        charge = self.get("charge", name)
        captured = charge["amount_captured"] if charge["payment_intent"] else charge["amount"]
        left = captured - charge["amount_refunded"]
        asked = _amount(sent, "amount")
        amount = left if asked is None else asked
        if not left or not charge["captured"]:
            raise StripeRefusal(
                400, "charge_already_refunded", f"Charge {name} has already been refunded."
            )
        if amount > left:
            raise StripeRefusal(
                400,
                "amount_too_large",
                f"Refund amount ({amount}) is greater than unrefunded amount on charge ({left})",
            )
        refund: dict[str, Any] = {
            "id": self._id("re"),
            "object": "refund",
            "amount": amount,
            "currency": charge["currency"],
            "charge": charge["id"],
            "payment_intent": charge["payment_intent"],
            "created": now,
            "metadata": dict(sent.get("metadata", {})),
            "reason": sent.get("reason"),
            "status": "succeeded",
        }
        self.objects[refund["id"]] = refund
        charge["amount_refunded"] += amount
        charge["refunded"] = charge["amount_refunded"] == captured
        refund["balance_transaction"] = self.post("refund", refund, -amount, 0, now)["id"]
        self._emit("refund.created", refund, now)
        self._emit("charge.refunded", charge, now)
        return refund

    def create_payout(self, sent: dict[str, Any], now: int) -> dict[str, Any]:
        amount, currency = _required_amount(sent), _currency(sent)
        if amount > self.balance(currency):
            raise StripeRefusal(
                400, "balance_insufficient", "You have insufficient funds in your Stripe account."
            )
        payout: dict[str, Any] = {
            "id": self._id("po"),
            "object": "payout",
            "amount": amount,
            "currency": currency,
            "created": now,
            "arrival_date": now + AVAILABLE_SECONDS,
            "description": sent.get("description"),
            "metadata": dict(sent.get("metadata", {})),
            "status": "pending",
        }
        self.objects[payout["id"]] = payout
        payout["balance_transaction"] = self.post("payout", payout, -amount, 0, now)["id"]
        self._emit("payout.created", payout, now)
        return payout

    def balance(self, currency: str) -> int:
        return sum(row["net"] for row in self.ledger if row["currency"] == currency)

    def post(
        self, category: str, source: dict[str, Any], amount: int, fee: int, now: int
    ) -> dict[str, Any]:
        """Write a row of the ledger."""
        row = {
            "id": self._id("txn"),
            "object": "balance_transaction",
            "amount": amount,
            "currency": source["currency"],
            "fee": fee,
            "net": amount - fee,
            "created": now,
            "available_on": now + AVAILABLE_SECONDS,
            "reporting_category": category,
            "type": category,
            "source": source["id"],
            "status": "pending",
        }
        self.ledger.append(row)
        return row

    def _emit(self, kind: str, about: dict[str, Any], now: int) -> None:
        event = {
            "id": self._id("evt"),
            "object": "event",
            "type": kind,
            "created": now,
            "livemode": False,
            # As it is now: an event does not change when its object does.
            "data": {"object": about | {"metadata": dict(about["metadata"])}},
        }
        self.events.append(event)

    def _id(self, prefix: str) -> str:
        self.numbers[prefix] = self.numbers.get(prefix, 0) + 1
        return f"{prefix}_{self.account.removeprefix('acct_')}{self.numbers[prefix]:08d}"


def _decline(code: str, decline_code: str, charge: str) -> StripeRefusal:
    return StripeRefusal(
        402, code, "Your card was declined.", decline_code=decline_code, charge=charge
    )


def _unexpected_state(done: str, intent: dict[str, Any]) -> StripeRefusal:
    return StripeRefusal(
        400,
        "payment_intent_unexpected_state",
        f"This PaymentIntent could not be {done} because it has a status of {intent['status']}.",
        payment_intent=intent,
    )


def _amount(sent: dict[str, Any], name: str) -> int | None:
    text = sent.get(name)
    if text is None:
        return None
    if not str(text).isdecimal():
        raise StripeRefusal(400, "parameter_invalid_integer", f"Invalid integer: {text}")
    if int(text) < 1:
        raise StripeRefusal(400, "parameter_invalid_integer", "This value must be at least 1.")
    return int(text)


def _required_amount(sent: dict[str, Any]) -> int:
    amount = _amount(sent, "amount")
    if amount is None:
        raise StripeRefusal(400, "parameter_missing", "Missing required param: amount.")
    return amount


def _currency(sent: dict[str, Any]) -> str:
    currency = str(sent.get("currency", "")).lower()
    if len(currency) != 3 or not currency.isalpha():
        raise StripeRefusal(400, "parameter_missing", f"Invalid currency: {currency}")
    return currency
