"""The gateway http: any gateway with a JSON API and idempotency keys, described by config.

What the description does not name is not guessed: an unknown status, a missing field or an amount
that cannot be read is an unknown outcome.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from gesta.domain.money import InvalidMoney, Money
from gesta.domain.outcome import Rejected, Retry
from gesta.errors import InvalidSignature, ListingFailed
from gesta.flows.payment.descriptor import AmountNotSupported, GatewayDescriptor
from gesta.flows.payment.gateway import (
    OPTIONS_INVALID,
    OTHER_ACCOUNT,
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
    Unrenderable,
    Window,
)
from gesta.flows.payment.http_description import (
    Description,
    Listing,
    at_path,
    description_of,
    filled_body,
    filled_path,
)
from gesta.outbound.http import AttemptEnded, HttpResponse, status_reason
from gesta.outbound.signatures import BadSignature, verify

#: Seconds to wait after a rate limit, or while a key is in use, without Retry-After.
WAIT_SECONDS: Final = 5.0
UNDESCRIBED: Final = AccountRefused(
    OPTIONS_INVALID, "the options of the gateway do not describe it; see gesta config get"
)
_UNREADABLE: Final = (KeyError, TypeError, ValueError, AmountNotSupported, InvalidMoney)


class HttpGateway:
    """Every account brings its own description."""

    type = "http"

    def descriptor(self, account: GatewayAccount) -> GatewayDescriptor:
        return description_of(account).descriptor

    def errors(self, account: GatewayAccount) -> Mapping[str, str]:
        if not account.api_url:
            return {"api_url": "is required for a gateway of type http"}
        try:
            found = description_of(account).errors()
        except msgspec.ValidationError as error:
            return {"options": str(error)}
        return {f"options.{field}": text for field, text in found.items()}

    def render(self, instruction: Instruction, connection: Connection) -> GatewayCall:
        described = _described(connection)
        if described is None:
            raise Unrenderable(UNDESCRIBED.reason, UNDESCRIBED.detail)
        request = described.operations.get(instruction.verb)
        if request is None:
            raise Unrenderable(
                "not_supported", f"the gateway {connection.code} describes no {instruction.verb}"
            )
        values = _values(instruction, described)
        return GatewayCall(
            gateway=connection.code,
            type=self.type,
            account=connection.fingerprint(),
            verb=instruction.verb,
            key=instruction.key,
            reference=instruction.reference,
            amount=instruction.amount,
            method=request.method,
            url=connection.account.api_url.rstrip("/") + filled_path(request.path, values),
            body=msgspec.json.encode(filled_body(request.body, values)),
            headers={"content-type": "application/json", described.key_header: instruction.key},
            target=instruction.target,
            resend_seconds=described.descriptor.resend_seconds,
        )

    async def execute(self, call: GatewayCall, connection: Connection) -> CallAnswer:
        if call.account != connection.fingerprint():
            return OTHER_ACCOUNT
        described = _described(connection)
        if described is None:
            return UNDESCRIBED
        try:
            response = await connection.http.exchange(
                call.method,
                call.url,
                body=call.body,
                headers=call.headers | _credential(described, connection),
                timeout_seconds=connection.timeout_seconds,
            )
        except AttemptEnded as ended:
            return _unanswered(ended)
        if not 200 <= response.status < 300:
            return _refused(response, described, connection)
        return _read(_json(response), call, described)

    async def look_up(
        self, call: GatewayCall, connection: Connection, payment_id: str = ""
    ) -> LookUpAnswer:
        if call.account != connection.fingerprint():
            return OTHER_ACCOUNT
        described = _described(connection)
        if described is None:
            return UNDESCRIBED
        reference = str(call.reference)
        values = {"reference": reference, "key": call.key, "target": call.target or payment_id}
        asked = await _asked(filled_path(described.look_up.path, values), described, connection)
        if not isinstance(asked, HttpResponse):
            last, missing = connection.http.last, described.look_up.missing_status
            if missing is not None and last is not None and last.status == missing:
                return CallNotFound()
            if isinstance(asked, CallRefused | CallContradicted | CallDeclined):
                return CallUnknown(asked.code, "the gateway refused the look-up")
            return asked if not isinstance(asked, CallPending) else CallUnknown("bad_answer")
        items = at_path(_json(asked), described.look_up.items)
        if not isinstance(items, list):
            return CallUnknown("bad_answer", "the answer has no list of movements")
        named = described.answer.reference
        found = next((one for one in items if at_path(one, named) == reference), None)
        if found is None:
            return CallNotFound()
        read = _read(found, call, described)
        return CallUnknown(read.code) if isinstance(read, CallRefused | CallContradicted) else read

    async def list(
        self, window: Window, connection: Connection, cursor: str | None = None
    ) -> LedgerPage:
        described = _described(connection)
        listing = None if described is None else described.ledger
        if described is None or listing is None:
            raise ListingFailed("not_supported", "the description of the gateway has no ledger")
        values = {
            "from": window.from_ms // 1_000,
            "to": -(-window.to_ms // 1_000),
            "cursor": cursor or "",
        }
        asked = await _asked(filled_path(listing.path, values), described, connection)
        if not isinstance(asked, HttpResponse):
            reason = getattr(asked, "reason", None) or getattr(asked, "code", "refused")
            raise ListingFailed(
                str(reason), getattr(asked, "detail", ""), getattr(asked, "after_seconds", 0.0)
            )
        page = _json(asked)
        try:
            rows = tuple(_row(one, listing, described) for one in at_path(page, listing.items))
        except _UNREADABLE:
            raise ListingFailed("bad_answer", "a row of the ledger cannot be read") from None
        return LedgerPage(rows, at_path(page, listing.next) or None)

    def verify(
        self, delivery: Delivery, account: GatewayAccount, secrets: Sequence[str], now_ms: int
    ) -> GatewayEvent:
        try:
            hook = description_of(account).webhook
            usable = [one for one in secrets if one]
            if hook is None or not usable:
                raise InvalidSignature
            verify(usable, delivery.headers, delivery.body, now_ms / 1_000)
            event = msgspec.json.decode(delivery.body, type=dict[str, Any])
        except (BadSignature, ValueError):
            raise InvalidSignature from None
        return GatewayEvent(
            # The id is part of what is signed, and the same in every delivery.
            id=delivery.headers["webhook-id"],
            kind=str(at_path(event, hook.kind) or ""),
            at_ms=_moment(at_path(event, hook.at), now_ms),
            payment_id=_text(event, hook.payment_id),
            movement_id=_text(event, hook.movement_id),
            reference=Reference.parse(at_path(event, hook.reference)),
        )


def _described(connection: Connection) -> Description | None:
    try:
        return description_of(connection.account)
    except msgspec.ValidationError:
        return None


def _credential(described: Description, connection: Connection) -> dict[str, str]:
    return {described.auth_header: described.auth.replace("{api_key}", connection.api_key)}


def _values(instruction: Instruction, described: Description) -> dict[str, Any]:
    money = instruction.amount
    try:
        units = None if money is None else described.descriptor.units_of(money)
    except AmountNotSupported as error:
        raise Unrenderable("amount_not_supported", str(error)) from None
    return {
        "units": units,
        "amount": None if money is None else money.amount,
        "currency": None if money is None else money.currency,
        "reference": str(instruction.reference),
        "key": instruction.key,
        "source": instruction.source,
        "destination": instruction.destination,
        "target": instruction.target,
        "description": instruction.description,
    }


async def _asked(
    path: str, described: Description, connection: Connection
) -> HttpResponse | CallAnswer:
    """The answer to a look-up, or the meaning of its failure."""
    try:
        response = await connection.http.exchange(
            "GET",
            connection.account.api_url.rstrip("/") + path,
            headers=_credential(described, connection),
            timeout_seconds=connection.timeout_seconds,
        )
    except AttemptEnded as ended:
        return _unanswered(ended)
    return response if response.status == 200 else _refused(response, described, connection)


def _unanswered(ended: AttemptEnded) -> CallRetry | CallUnknown | CallRefused:
    match ended.outcome:
        case Retry(reason, detail, after_seconds):
            return CallRetry(reason, detail, after_seconds)
        case Rejected(reason, detail):
            return CallRefused(reason, detail)
        case outcome:
            return CallUnknown(getattr(outcome, "reason", "bad_answer"), outcome.detail)


def _refused(response: HttpResponse, described: Description, connection: Connection) -> CallAnswer:
    """The meaning of an answer that is not a success."""
    status, found = response.status, at_path(_json(response), described.answer.error)
    code = found if isinstance(found, str) else ""
    reason, detail = status_reason(status), f"answered {status}"
    after = connection.http.retry_after(response)
    if status == 429:
        return CallRetry(reason, detail, WAIT_SECONDS if after is None else after, throttled=True)
    if status in (401, 403):
        return AccountRefused(reason, detail)
    if code in described.contradictions:
        return CallContradicted(code)
    if status == 409:
        return CallRetry(reason, detail, WAIT_SECONDS if after is None else after, in_progress=True)
    if status == 402 or code in described.declines or code in described.soft_declines:
        return CallDeclined(code or reason, code in described.soft_declines)
    if 300 <= status < 500 and status not in (408, 424):
        return CallRefused(code or reason, detail)
    # 502 to 504 may come from a proxy: the gateway may never have seen the key.
    is_stored = status == 500 and described.replays == "all"
    return CallUnknown(reason, detail, after or 0.0, is_stored=is_stored)


def _read(found: Any, call: GatewayCall, described: Description) -> CallAnswer:
    """What a movement of the gateway means for a call."""
    fields = described.answer
    try:
        name = _text(found, fields.id)
        meaning = described.statuses.get(at_path(found, fields.status))
        if not name or meaning is None:
            return CallUnknown("bad_answer", "the answer has no id, or a status without a meaning")
        if meaning == "pending":
            return CallPending(name, str(at_path(found, fields.status)))
        if meaning == "declined":
            code = at_path(found, fields.error)
            is_soft = code in described.soft_declines
            return CallDeclined(code if isinstance(code, str) else "declined", is_soft, name)
        money = _money(found, fields.amount, fields.currency, described)
        movement = _text(found, fields.movement_id)
        if call.amount is not None and money != call.amount:
            return CallConflicted(name, money, movement)
        before = at_path(found, fields.capture_before)
        before_ms = before * 1_000 if type(before) is int else None
        return CallSucceeded(name, money, movement, before_ms)
    except _UNREADABLE:
        return CallUnknown("bad_answer", "the answer cannot be read")


def _money(found: Any, amount: str, currency: str, described: Description) -> Money:
    stated, code = at_path(found, amount), at_path(found, currency)
    if not isinstance(code, str):
        raise TypeError(currency)
    if described.amounts == "decimal":
        return Money(stated, code.upper())
    if type(stated) is not int:
        raise TypeError(amount)
    return described.descriptor.money_of(stated, code)


def _row(one: Any, listing: Listing, described: Description) -> LedgerRow:
    fields = described.answer
    at = at_path(one, listing.at)
    if type(at) is not int or not (name := _text(one, listing.id)):
        raise TypeError(listing.at)
    return LedgerRow(
        id=name,
        kind=listing.kinds.get(at_path(one, listing.kind), "other"),
        amount=_money(one, fields.amount, fields.currency, described),
        fee=_money(one, listing.fee, fields.currency, described),
        status="available" if at_path(one, listing.status) in listing.final else "pending",
        at_ms=at * 1_000,
        movement_id=_text(one, listing.movement_id),
        payment_id=_text(one, listing.payment_id),
        reference=Reference.parse(at_path(one, fields.reference)),
    )


def _text(found: Any, path: str) -> str:
    text = at_path(found, path)
    return text if isinstance(text, str) else ""


def _moment(stated: Any, now_ms: int) -> int:
    """Epoch milliseconds of a time; now, where it cannot be read."""
    if type(stated) is int:
        return stated * 1_000
    try:
        return int(datetime.fromisoformat(stated).timestamp() * 1_000)
    except (TypeError, ValueError):
        return now_ms


def _json(response: HttpResponse) -> Any:
    try:
        return msgspec.json.decode(response.body) if response.is_whole else None
    except msgspec.DecodeError:
        return None
