"""Executes operations of transactions at a gateway: render the call, send it, look it up.

The flows card, transfer and settlement share it; they differ in their payloads. A call is rendered
once for each intent and journalled. `execute` and `look_up` use the journalled call only. If the
account behind its code is another one by then, nothing is sent.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from gesta.domain.money import Money
from gesta.domain.outcome import Done, Movement, Outcome, Rejected, Retry, Unknown
from gesta.domain.transaction.funds import STORED, Funds
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused, Postponed
from gesta.flows.flow import Rendered
from gesta.flows.payment.descriptor import GatewayDescriptor
from gesta.flows.payment.gateway import (
    ACCOUNT_CHANGED,
    GATEWAY,
    OPTIONS_INVALID,
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
    Gateway,
    GatewayAccount,
    GatewayCall,
    Instruction,
    LookUpAnswer,
    Reference,
    Unrenderable,
    Verb,
)
from gesta.flows.payment.gateways import installed
from gesta.outbound.http import AttemptEnded
from gesta.outbound.rate_limits import Limit
from gesta.tenants.config import TenantConfig

#: Operation → what the gateway is asked to do. A reversal voids or refunds.
VERBS: Final[Mapping[str, Verb]] = {
    "authorization": "authorize",
    "reservation": "authorize",
    "sale": "sale",
    "transfer": "sale",
    "settlement": "payout",
    "capture": "capture",
    "posting": "capture",
    "void": "void",
    "refund": "refund",
}
#: Reasons that may be labels of a metric.
REASONS: Final = frozenset(
    """account_changed amount_mismatch bad_journal conflicted contradicted declined
    declined_retryable gateway_type_missing in_progress key_forgotten needs_customer no_fake
    not_executed not_found not_supported pending refused refused_in_doubt stored_failure throttled
    unrenderable""".split()
)
ALARMS: Final = frozenset({"account_changed", "amount_mismatch", "conflicted"})
_BURST: Final = 20
_THROTTLED_SECONDS: Final = 2.0
_encode_call = msgspec.json.Encoder().encode
_call_decoder = msgspec.json.Decoder(GatewayCall)
_MOVED_AWAY: Final = (
    "the config now names another account than the one the call was made for; nothing was sent"
)
_NO_FAKE: Final = (
    "a test request reaches fakes only, and the sandbox has none of the gateway type {!r}; nothing"
    " was sent. Use an account of type 'stripe' for test requests"
)


class _Account(NamedTuple):
    """What the config says about an account. Resolved once for each version of the config."""

    gateway: Gateway
    account: GatewayAccount
    limit: Limit
    descriptor: GatewayDescriptor


class _Ready(msgspec.Struct, frozen=True, gc=False):
    """A call, and the account and credential to send it with."""

    call: GatewayCall
    gateway: Gateway
    connection: Connection
    limit: Limit


class Execution:
    """What a flow does at gateways; None: all that gesta has.

    `details` reads source, destination and text of a payload.
    """

    def __init__(
        self,
        gateways: Sequence[Gateway] | None,
        details: Callable[[Any], Mapping[str, str]],
        *,
        timeout_seconds: float,
    ) -> None:
        self.gateways = installed() if gateways is None else tuple(gateways)
        self._gateways = {one.type: one for one in self.gateways}
        self._details, self.timeout_seconds = details, timeout_seconds

    def render(self, payload: Any, attempt: Attempt) -> Rendered | Coroutine[Any, Any, Rendered]:
        """The call of a new intent, with what the lifecycle has to know about its gateway; a
        coroutine if the vault has to be read.
        """
        code = attempt.facts.gateway
        known = self._known(code, attempt)
        keys = attempt.config.secrets_at_hand(GATEWAY, code, "api_key")
        if keys is None:
            return self.rendered(payload, attempt)
        return self._rendered(payload, attempt, known, self._connection(code, known, keys, attempt))

    async def rendered(self, payload: Any, attempt: Attempt) -> Rendered:
        """Like `render`, and wait for the vault if needed."""
        known, connection = await self._connect(attempt.facts.gateway, attempt)
        return self._rendered(payload, attempt, known, connection)

    def _rendered(
        self, payload: Any, attempt: Attempt, known: _Account, connection: Connection
    ) -> Rendered:
        funds: Funds = attempt.facts
        gateway, account, limit, descriptor = known
        if attempt.test and not descriptor.has_fake:
            raise AttemptEnded(Rejected("no_fake", _NO_FAKE.format(account.type)))
        verb = VERBS[funds.undoes if attempt.operation == "reversal" else attempt.operation]
        if verb not in descriptor.verbs:
            raise AttemptEnded(Rejected("not_supported", f"{account.type} has no {verb}"))
        instruction = Instruction(
            verb=verb,
            key=_key(attempt.key, descriptor.key_length_max),
            reference=Reference(
                attempt.tenant,
                attempt.flow,
                attempt.request_id,
                attempt.operation,
                attempt.intent,
            ),
            amount=None if verb == "void" else _pending(funds, payload.amount),
            target=funds.payment_id,
            is_final=funds.is_final,
            **self._details(payload),
        )
        try:
            call = gateway.render(instruction, connection)
        except Unrenderable as error:
            if error.reason == OPTIONS_INVALID:
                raise _undescribed(attempt.facts.gateway, str(error)) from None
            raise AttemptEnded(Rejected(error.reason, str(error))) from None
        facts = {
            "request_hash": call.request_hash,
            "gateway": connection.code,
            "account": call.account,
            "key_seconds": 0.0 if descriptor.replays == "none" else call.resend_seconds,
            "can_look_up": bool(descriptor.look_up_by),
            "visible_seconds": descriptor.visible_after_seconds,
            "multiple_captures": descriptor.multiple_captures,
        }
        ready = _Ready(call, gateway, connection, limit)
        return Rendered(_encode_call(call), facts, ready)

    async def execute(self, _: object, attempt: Attempt) -> Outcome:
        """Send the journalled call once."""
        ready: _Ready = attempt.prepared or await self._journalled(attempt)
        call = ready.call
        if not attempt.limits.take_now(ready.limit):
            await attempt.limits.take(ready.limit)
        answer = await ready.gateway.execute(call, ready.connection)
        if isinstance(answer, CallRetry):
            await _throttle(answer, ready.limit, attempt)
        return _outcome(answer, call, in_doubt=attempt.in_doubt)

    async def look_up(self, _: object, attempt: Attempt) -> Outcome:
        """Ask the gateway what became of the journalled call. Retry: it has no record of it."""
        ready = await self._journalled(attempt)
        await attempt.limits.take(ready.limit)
        payment_id = attempt.facts.payment_id
        answer = await ready.gateway.look_up(ready.call, ready.connection, payment_id)
        if isinstance(answer, CallRetry):
            await _throttle(answer, ready.limit, attempt)
        return _found(answer, ready.call)

    async def _journalled(self, attempt: Attempt) -> _Ready:
        call = _call_decoder.decode(attempt.call)
        known, connection = await self._connect(call.gateway, attempt)
        return _Ready(call, known.gateway, connection, known.limit)

    def _account(self, config: TenantConfig, code: str) -> _Account:
        stored = config.get(GATEWAY, code)
        if stored is None:
            raise ConfigMissing(GATEWAY, code, "gateway_missing")
        assert isinstance(stored.body, GatewayAccount)
        account = stored.body
        gateway = self._gateways.get(account.type)
        if gateway is None:
            known = ", ".join(sorted(self._gateways))
            raise AttemptEnded(
                Retry("gateway_type_missing", f"no gateway {account.type!r} here; known: {known}")
            )
        limit = Limit(f"payment/{code}", account.per_second, burst=_BURST)
        try:
            descriptor = gateway.descriptor(account)
        except msgspec.ValidationError as error:
            raise _undescribed(code, str(error)) from None
        return _Account(gateway, account, limit, descriptor)

    async def _connect(self, code: str, attempt: Attempt) -> tuple[_Account, Connection]:
        """The account as it is now. The gateway compares it with that of the journalled call."""
        known = self._known(code, attempt)
        keys = await attempt.config.secrets(GATEWAY, code, "api_key")
        return known, self._connection(code, known, keys, attempt)

    def _known(self, code: str, attempt: Attempt) -> _Account:
        return attempt.config.derived((self, code), self._account, code)

    def _connection(
        self, code: str, known: _Account, keys: Sequence[str], attempt: Attempt
    ) -> Connection:
        if not keys:
            detail = "the vault has no api_key"
            raise CredentialRefused(f"{GATEWAY}/{code}", SECRET_MISSING, detail)
        return Connection(attempt.http, code, known.account, keys[0], self.timeout_seconds)


def _undescribed(code: str, text: str) -> CredentialRefused:
    """Its payments wait until the account is stored again."""
    return CredentialRefused(f"{GATEWAY}/{code}", OPTIONS_INVALID, text)


async def _throttle(answer: CallRetry, limit: Limit, attempt: Attempt) -> None:
    """All calls to the account wait; this one has moved nothing and uses up no attempt."""
    if answer.throttled:
        seconds = answer.after_seconds or _THROTTLED_SECONDS
        await attempt.limits.close(limit.name, seconds)
        raise Postponed(seconds)


def _pending(funds: Funds, first: Money) -> Money:
    """The amount of the open operation; `first`: that of the payload, which is often the same."""
    if first.minor == funds.pending and first.currency == funds.currency:
        return first
    return Money.of_minor(funds.pending, funds.currency)


def _key(key: str, length_max: int) -> str:
    return key if len(key) <= length_max else sha256(key.encode()).hexdigest()[:length_max]


def _outcome(answer: CallAnswer, call: GatewayCall, *, in_doubt: bool) -> Outcome:
    match answer:
        case CallSucceeded():
            return _done(answer, call)
        case CallPending():
            reason = "needs_customer: " if answer.needs_customer else ""
            return Unknown("pending", f"{reason}{answer.status}")
        case CallDeclined():
            return Rejected("declined_retryable" if answer.soft else "declined", answer.code)
        case CallRefused() if in_doubt:
            # It may be refused because it was executed before: only a look-up decides.
            return Unknown("refused_in_doubt", _joined(answer.code, answer.detail))
        case CallRefused():
            return Rejected("refused", _joined(answer.code, answer.detail))
        case CallRetry(in_progress=True):
            return Unknown("in_progress", answer.detail, answer.after_seconds)
        case CallRetry():
            return Retry(answer.reason, answer.detail, answer.after_seconds)
        case CallUnknown():
            reason = STORED if answer.is_stored else answer.reason
            return Unknown(reason, answer.detail, answer.after_seconds)
        case CallContradicted():
            return Unknown("contradicted", answer.code)
        case CallConflicted():
            return _conflicted(answer, call)
        case AccountRefused() if answer.reason == ACCOUNT_CHANGED and in_doubt:
            return Unknown("account_changed", _MOVED_AWAY, manual=True)
        case AccountRefused() if answer.reason == ACCOUNT_CHANGED:
            return Rejected("account_changed", _MOVED_AWAY)
        case AccountRefused():
            raise CredentialRefused(f"{GATEWAY}/{call.gateway}", answer.reason, answer.detail)
        case _:
            assert_never(answer)


def _found(answer: LookUpAnswer, call: GatewayCall) -> Outcome:
    match answer:
        case CallSucceeded():
            return _done(answer, call)
        case CallPending():
            return Unknown("pending", answer.status)
        case CallDeclined():
            return Rejected("declined_retryable" if answer.soft else "declined", answer.code)
        case CallConflicted():
            return _conflicted(answer, call)
        case CallNotFound():
            return Retry("not_found", f"{call.type} has no record of it")
        case CallRetry() | CallUnknown():
            return Unknown(answer.reason, answer.detail, answer.after_seconds)
        case AccountRefused() if answer.reason == ACCOUNT_CHANGED:
            return Unknown("account_changed", _MOVED_AWAY, manual=True)
        case AccountRefused():
            raise CredentialRefused(f"{GATEWAY}/{call.gateway}", answer.reason, answer.detail)
        case _:
            assert_never(answer)


def _done(answer: CallSucceeded, call: GatewayCall) -> Outcome:
    if call.amount is not None and answer.amount != call.amount:
        return _conflicted(CallConflicted(answer.id, answer.amount, answer.movement_id), call)
    amount = None if call.amount is None else call.amount.minor
    return Done(answer.id, movement=Movement(amount, answer.movement_id, answer.capture_before))


def _conflicted(answer: CallConflicted, call: GatewayCall) -> Unknown:
    text = f"{call.type} reports {answer.found} as {answer.id}, asked for {call.amount}"
    return Unknown("conflicted", text, manual=True)


def _joined(code: str, detail: str) -> str:
    return f"{code}: {detail}" if detail else code
