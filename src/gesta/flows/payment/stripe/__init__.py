"""The gateway stripe: card payments as payment intents, through Stripe's own client.

Every object carries our reference in its metadata (`gesta_reference`), and is found by it when the
answer was lost. Captures and voids have no object of their own: their payment intent is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from gesta.errors import InvalidSignature, ListingFailed
from gesta.flows.payment.descriptor import AmountNotSupported, GatewayDescriptor
from gesta.flows.payment.gateway import (
    OPTIONS_INVALID,
    OTHER_ACCOUNT,
    CallAnswer,
    CallContradicted,
    CallNotFound,
    CallRefused,
    CallSucceeded,
    CallUnknown,
    Connection,
    Delivery,
    GatewayAccount,
    GatewayCall,
    GatewayEvent,
    Instruction,
    LedgerPage,
    LedgerRow,
    LookUpAnswer,
    Reference,
    RowKind,
    Unrenderable,
    Window,
)
from gesta.flows.payment.stripe.answers import (
    PAYOUT_STEPS,
    STRIPE,
    answer_of,
    answer_to,
    answer_without,
    money_in,
)
from gesta.flows.payment.stripe.client import TooLarge, ask, base_url, require_library, send
from gesta.outbound.http import AttemptEnded

T = TypeVar("T")

__all__ = ["STRIPE", "StripeGateway"]

REFERENCE: Final = "gesta_reference"
#: How far Stripe's clock may be off, and how long a captured webhook can be replayed.
TOLERANCE_SECONDS: Final = 300
_PAGE: Final = 100
#: Payouts cannot be searched; this many pages of a list are read for one.
_PAGES_MAX: Final = 10
_KINDS: Final[dict[str, RowKind]] = {
    "charge": "charge",
    "refund": "refund",
    "partial_capture_reversal": "refund",
    "payout": "payout",
    "payout_reversal": "return",
    "charge_failure": "return",
    "refund_failure": "return",
    "fee": "fee",
    "dispute": "dispute",
    "dispute_reversal": "dispute",
}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`options` of an account of this type."""

    #: The connected account on whose behalf calls are made.
    stripe_account: str | None = None
    #: The version of Stripe's API; by default that of the installed client.
    api_version: str | None = None
    #: decline: a payment that needs the customer (3-D Secure) is declined. wait: it is pending.
    on_requires_action: str = "decline"
    payment_method_types: tuple[str, ...] = ("card",)


class StripeGateway:
    """Stripe. It has no state; one serves all accounts."""

    type: str = STRIPE.type

    def __init__(self) -> None:
        require_library()

    def descriptor(self, _: GatewayAccount) -> GatewayDescriptor:
        return STRIPE

    def errors(self, account: GatewayAccount) -> Mapping[str, str]:
        if "/v1" in account.api_url:
            return {"api_url": "must be the address before /v1, e.g. https://api.stripe.com"}
        try:
            options = _options(account)
        except msgspec.ValidationError as error:
            return {"options": str(error)}
        if options.on_requires_action not in ("decline", "wait"):
            return {"options": "on_requires_action must be decline or wait"}
        return {}

    def render(self, instruction: Instruction, connection: Connection) -> GatewayCall:
        try:
            options = _options(connection.account)
        except msgspec.ValidationError as error:
            raise Unrenderable(OPTIONS_INVALID, f"options of the gateway: {error}") from None
        path, fields = _fields(instruction, options)
        from stripe import api_version

        headers = {"stripe-version": options.api_version or api_version}
        if options.stripe_account is not None:
            headers["stripe-account"] = options.stripe_account
        return GatewayCall(
            gateway=connection.code,
            type=STRIPE.type,
            account=_fingerprint(connection),
            verb=instruction.verb,
            key=instruction.key,
            reference=instruction.reference,
            amount=instruction.amount,
            method="POST",
            url=base_url(connection) + path,
            body=urlencode(fields).encode(),
            headers=headers,
            target=instruction.target,
            resend_seconds=STRIPE.resend_seconds,
        )

    async def execute(self, call: GatewayCall, connection: Connection) -> CallAnswer:
        if call.account != _fingerprint(connection):
            return OTHER_ACCOUNT
        try:
            made, replayed = await _answered(send(call, connection), connection)
        except _NoSuccess as no_success:
            return no_success.answer
        read = answer_of(made, call)
        if isinstance(read, CallNotFound):
            # A 2xx after which nothing was captured or voided.
            return CallUnknown("bad_answer", "Stripe reported success but did nothing")
        if isinstance(read, CallSucceeded) and replayed:
            return msgspec.structs.replace(read, replayed=True)
        return read

    async def look_up(
        self, call: GatewayCall, connection: Connection, payment_id: str = ""
    ) -> LookUpAnswer:
        if call.account != _fingerprint(connection):
            return OTHER_ACCOUNT
        read: CallAnswer | CallNotFound
        try:
            found = await _answered(_find(call, connection, payment_id), connection)
            read = answer_of(found, call) if found else CallNotFound()
        except _NoSuccess as no_success:
            read = no_success.answer
        if isinstance(read, CallRefused | CallContradicted):
            # Also a payment that is not there: our own id of it must be wrong, so nothing is known.
            return CallUnknown(read.code, "Stripe refused the look-up")
        return read

    async def list(
        self, window: Window, connection: Connection, cursor: str | None = None
    ) -> LedgerPage:
        asked: dict[str, Any] = {
            "created": {"gte": window.from_ms // 1_000, "lt": -(-window.to_ms // 1_000)},
            "limit": _PAGE,
            "expand": ["data.source"],
        }
        if cursor is not None:
            asked["starting_after"] = cursor
        version = _version(connection)
        try:
            page = await _answered(
                ask(connection, "/v1/balance_transactions", version, asked), connection
            )
        except _NoSuccess as no_success:
            answer = no_success.answer
            reason = getattr(answer, "reason", None) or getattr(answer, "code", "refused")
            raise ListingFailed(
                str(reason), getattr(answer, "detail", ""), getattr(answer, "after_seconds", 0.0)
            ) from None
        try:
            rows = tuple(_row(row) for row in page["data"])
            more = page["has_more"] and rows
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ListingFailed("bad_answer", "a row of the ledger cannot be read") from None
        return LedgerPage(rows, rows[-1].id if more else None)

    def verify(
        self, delivery: Delivery, _: GatewayAccount, secrets: Sequence[str], now_ms: int
    ) -> GatewayEvent:
        from stripe import SignatureVerificationError, WebhookSignature

        header = delivery.headers.get("stripe-signature", "")
        for secret in secrets:
            try:
                WebhookSignature.verify_header(delivery.body, header, secret)
                break
            except (SignatureVerificationError, UnicodeDecodeError):
                continue
        else:
            raise InvalidSignature
        if abs(_signed_at(header) - now_ms / 1_000) > TOLERANCE_SECONDS:
            raise InvalidSignature
        try:
            return _event(msgspec.json.decode(delivery.body, type=dict[str, Any]))
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            # It is Stripe's, and not an event: nothing that could be used.
            raise InvalidSignature from None


class _NoSuccess(Exception):
    """Stripe did not answer with success; `answer` says what that means."""

    def __init__(self, answer: CallAnswer) -> None:
        super().__init__(repr(answer))
        self.answer = answer


async def _answered(asking: Awaitable[T], connection: Connection) -> T:
    """The result of a call. Raises _NoSuccess."""
    from stripe import StripeError

    try:
        return await asking
    except StripeError as error:
        last = connection.http.last
        after = None if last is None else connection.http.retry_after(last)
        raise _NoSuccess(answer_to(error, after or 0.0)) from None
    except AttemptEnded as ended:
        raise _NoSuccess(answer_without(ended.outcome)) from None
    except TooLarge:
        raise _NoSuccess(CallUnknown("too_large", "the answer is too long to read")) from None


def _fields(instruction: Instruction, options: Options) -> tuple[str, list[tuple[str, str]]]:
    """The path, and the fields of the form."""
    reference = str(instruction.reference)
    units = "" if instruction.amount is None else _units(instruction)
    mark = (f"metadata[{REFERENCE}]", reference)
    target = instruction.target
    match instruction.verb:
        case "authorize" | "sale":
            return "/v1/payment_intents", _payment(instruction, options, units, mark)
        case "capture":
            name = f"gesta_{instruction.reference.operation}_{instruction.reference.intent}"
            fields = [("amount_to_capture", units), (f"metadata[{name}]", f"{units} {reference}")]
            if not instruction.is_final:
                fields.append(("final_capture", "false"))
            return f"/v1/payment_intents/{target}/capture", [*fields, _WITH_CHARGE]
        case "void":
            return f"/v1/payment_intents/{target}/cancel", []
        case "refund":
            return "/v1/refunds", [("payment_intent", target), ("amount", units), mark]
        case "payout":
            assert instruction.amount is not None
            currency = instruction.amount.currency.lower()
            return "/v1/payouts", [("amount", units), ("currency", currency), mark]


#: The charge names the last moment of a capture.
_WITH_CHARGE: Final = ("expand[0]", "latest_charge")


def _payment(
    instruction: Instruction, options: Options, units: str, mark: tuple[str, str]
) -> list[tuple[str, str]]:
    assert instruction.amount is not None
    fields = [
        ("amount", units),
        ("currency", instruction.amount.currency.lower()),
        ("payment_method", instruction.source),
        ("capture_method", "manual" if instruction.verb == "authorize" else "automatic"),
        ("confirm", "true"),
        mark,
        _WITH_CHARGE,
    ]
    fields += [
        (f"payment_method_types[{n}]", kind) for n, kind in enumerate(options.payment_method_types)
    ]
    if options.on_requires_action == "decline":
        fields.append(("error_on_requires_action", "true"))
    if instruction.destination:
        fields.append(("transfer_data[destination]", instruction.destination))
    if instruction.description:
        fields.append(("description", instruction.description))
    return fields


def _units(instruction: Instruction) -> str:
    amount = instruction.amount
    assert amount is not None
    try:
        units = STRIPE.units_of(amount)
    except AmountNotSupported as error:
        raise Unrenderable("amount_not_supported", str(error)) from None
    if instruction.verb == "payout" and units % PAYOUT_STEPS.get(amount.currency, 1):
        text = f"Stripe pays out only whole amounts of {amount.currency}, not {amount}"
        raise Unrenderable("amount_not_supported", text)
    return str(units)


async def _find(call: GatewayCall, connection: Connection, payment_id: str) -> dict[str, Any]:
    """The object that a call made or changed; empty: there is none."""
    version, reference = call.headers["stripe-version"], str(call.reference)
    if call.verb == "refund":
        asked = {"payment_intent": call.target, "limit": _PAGE}
        return await _listed(connection, "/v1/refunds", version, asked, reference)
    if call.verb == "payout":
        return await _listed(connection, "/v1/payouts", version, {"limit": _PAGE}, reference)
    if name := call.target or payment_id:
        intent = await ask(
            connection, f"/v1/payment_intents/{name}", version, {"expand": ["latest_charge"]}
        )
        # Whatever id was learned, only our own reference shows that the payment is ours.
        if call.target or _mark(intent) == reference:
            return intent
    query = f'metadata["{REFERENCE}"]:"{reference}"'
    found = await ask(
        connection,
        "/v1/payment_intents/search",
        version,
        {"query": query, "expand": ["data.latest_charge"]},
    )
    return next((one for one in found.get("data", []) if _mark(one) == reference), {})


async def _listed(
    connection: Connection, path: str, version: str, asked: dict[str, Any], reference: str
) -> dict[str, Any]:
    """The newest object of a list that has this reference."""
    for _ in range(_PAGES_MAX):
        page = await ask(connection, path, version, asked)
        found = next((one for one in page.get("data", []) if _mark(one) == reference), None)
        if found is not None or not page.get("has_more"):
            return found or {}
        asked = asked | {"starting_after": page["data"][-1]["id"]}
    # It may be further back: that is not the same as missing.
    raise TooLarge


def _row(row: Mapping[str, Any]) -> LedgerRow:
    source = row.get("source")
    made = source if isinstance(source, dict) else {}
    payment = made.get("payment_intent") or (made.get("id") if row["type"] == "payout" else "")
    return LedgerRow(
        id=row["id"],
        kind=_KINDS.get(row.get("reporting_category") or row["type"], "other"),
        amount=money_in(row, "amount"),
        fee=money_in(row, "fee"),
        status="available" if row["status"] == "available" else "pending",
        at_ms=row["created"] * 1_000,
        movement_id=made.get("id") or (source if isinstance(source, str) else ""),
        payment_id=payment or "",
        reference=Reference.parse(_mark(made)),
    )


def _event(event: Mapping[str, Any]) -> GatewayEvent:
    about = event["data"]["object"]
    kind, name = about["object"], about.get("id") or ""
    is_payment = kind in ("payment_intent", "payout")
    return GatewayEvent(
        id=event["id"],
        kind=event["type"],
        at_ms=event["created"] * 1_000,
        payment_id=name if is_payment else about.get("payment_intent") or "",
        movement_id="" if kind == "payment_intent" else name,
        reference=Reference.parse(_mark(about)),
    )


def _mark(one: Mapping[str, Any]) -> object:
    return (one.get("metadata") or {}).get(REFERENCE)


def _signed_at(header: str) -> float:
    stated = [part[2:] for part in header.split(",") if part.startswith("t=")]
    return float(stated[0]) if stated and stated[0].isdecimal() else 0.0


def _fingerprint(connection: Connection) -> str:
    # A key for tests reaches other payments than one for real money.
    mode = "test" if "_test_" in connection.api_key else "live"
    return connection.fingerprint(f"{mode} {connection.account.options.get('stripe_account')}")


def _options(account: GatewayAccount) -> Options:
    return msgspec.convert(account.options, Options)


def _version(connection: Connection) -> str:
    from stripe import api_version

    return _options(connection.account).api_version or api_version
