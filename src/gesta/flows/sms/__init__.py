"""notification.sms: a text by Twilio's REST API.

Twilio's answer, and the outcome:

- 201: Done, with the sid as id and the segments as detail. Status callbacks report the delivery.
- Rate limited (429, 20429), too many failures (70005): not processed. The account's limit is closed
  for all processes; the request waits and uses up no attempt.
- 500 (20500), any 5xx, a lost answer: Unknown. Twilio is asked for the texts to this number.
- 401, 403, 20003: requests of the account are held until its token changes.
- 21211, 21610 and similar codes: Rejected with a reason of gesta.
- A code that is not in the table in twilio.py: Rejected `twilio_other`, and an error in the log.

Twilio has no idempotency key and a text carries no mark, so a lost one is found by number, text,
sender and time. If two equal texts went to one number within that time, the outcome stays unknown
and a person decides. The window for a mistake: of two equal requests within about a minute, one
was sent and one was lost before it reached Twilio; then the lost one is taken for the other.
"""

from collections.abc import Mapping
from typing import Final

from gesta.domain.commands import Rules
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BadFlow, StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, ConfigMissing, CredentialRefused, Postponed
from gesta.flows.flow import Check, Executor, Flow, Notice, Notices, Payload
from gesta.flows.sms.message import (
    ACCOUNT,
    ADDRESSES,
    BODY_LENGTH_MAX,
    DEFAULT,
    NAME,
    NOT_A_NUMBER,
    Account,
    Message,
    e164,
    errors_of,
    require_library,
    segments_of,
    tags_of,
)
from gesta.flows.sms.reports import callback_url, reporting
from gesta.flows.sms.twilio import (
    MEANINGS,
    OTHER,
    THROTTLED_SECONDS,
    Twilio,
    meaning_of,
    outcome_of,
)
from gesta.outbound.http import AttemptEnded, HttpResponse, ProviderRefusal
from gesta.outbound.rate_limits import Limit
from gesta.runtime.redaction import scrub
from gesta.tenants.config import TenantConfig
from gesta.tenants.suppression import suppressions
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates

__all__ = ["Account", "Message", "flow"]

#: A text that Twilio received just before the connection broke is listed by then.
ASK_AFTER_SECONDS: Final = 30.0
_MARGIN_SECONDS: Final = 5.0
#: The burst of an account.
_BURST: Final = 10
#: Reasons of this channel that may be labels of a metric: a closed set.
_REASONS: Final = frozenset(
    {
        *(reason for _, reason in MEANINGS.values()),
        OTHER,
        "account_missing",
        "sender_missing",
        "template_missing",
        "template_render_failed",
        "history_too_long",
        "ambiguous",
        "not_sent",
        "suppressed",
    }
)


def flow(
    account_sid: str | None = None,
    token: str | None = None,
    sender: str | None = None,
    *,
    default_region: str | None = None,
    timeout_seconds: float = 20.0,
    concurrency: int = 100,
) -> Flow:
    """The channel.

    `account_sid`, `token` and `sender` declare the account `default` for tenants that have stored
    none of that code. `token` is the account's, or `env:NAME`, which is read when a text is sent.
    """
    require_library()
    declared = (
        None if account_sid is None else _declared(account_sid, token, sender, default_region)
    )
    return Flow(
        NAME,
        Message,
        _executor(declared, timeout_seconds),
        Rules(RetryPolicy(attempts=5), "reconcile", ask_after_seconds=ASK_AFTER_SECONDS),
        _reconciler(declared, timeout_seconds),
        timeout_seconds=timeout_seconds + _MARGIN_SECONDS,
        concurrency=concurrency,
        config={ACCOUNT: Account, TEMPLATE: Template},
        example={"to": "+4930123456", "body": "Your parcel is here"},
        credential=lambda message: f"{ACCOUNT}/{message.account}",
        declared=(
            {}
            if declared is None
            else {f"{ACCOUNT}/{DEFAULT}": (declared.account_sid, declared.auth_token)}
        ),
        check=_checker(declared),
        tags=tags_of,
        reasons=_REASONS,
        clear_texts=True,
        alarms=frozenset({OTHER}),
        effects="attempt",
        stand_ins=lambda _: {ACCOUNT: Account("ACsandbox", "", "sandbox")},
        notices=notices(declared),
        reports=reporting(declared),
        addresses=ADDRESSES,
    )


def _executor(declared: Account | None, timeout_seconds: float) -> Executor:
    async def execute(message: Message, attempt: Attempt) -> Outcome:
        account, twilio = await _account(message, attempt, declared, timeout_seconds)
        to, body = _number(message, account), await _body(message, attempt)
        await _refuse_suppressed(to, attempt)
        report_to = await callback_url(attempt, message.account, account)
        await attempt.limits.take(_limit(message, account))
        try:
            sid = await twilio.send(to, body, report_to)
        except ProviderRefusal as refused:
            return await _ending(refused.response, message, attempt, account)
        return Done(sid, detail=str(segments_of(body)))

    return execute


def _reconciler(declared: Account | None, timeout_seconds: float) -> Executor:
    async def reconcile(message: Message, attempt: Attempt) -> Outcome:
        account, twilio = await _account(message, attempt, declared, timeout_seconds)
        to, body = _number(message, account), await _body(message, attempt)
        await attempt.limits.take(_limit(message, account))
        try:
            return await twilio.find(to, body, attempt, is_rendered=message.template is not None)
        except ProviderRefusal as refused:
            outcome = await _ending(refused.response, message, attempt, account)
            # A refused question does not resolve the outcome.
            return outcome if isinstance(outcome, Done) else Unknown(outcome.reason, outcome.detail)

    return reconcile


def _checker(declared: Account | None) -> Check:
    async def check(
        message: Message, config: TenantConfig, templates: Templates
    ) -> Mapping[str, str]:
        account = getattr(config.find(ACCOUNT, message.account), "body", declared)
        errors = errors_of(message, None if account is None else account.default_region)
        if errors or message.template is None:
            return errors
        return await templates.missing(message.template, message.data, message.locale)

    return check


def _declared(
    account_sid: str, token: str | None, sender: str | None, default_region: str | None
) -> Account:
    if not token or not sender:
        raise BadFlow(
            NAME,
            "account_sid= needs token=, 'env:NAME' or the account's own, and sender=, a number of"
            " the account",
        )
    return Account(account_sid, token, sender, default_region=default_region)


async def _account(
    message: Message, attempt: Attempt, declared: Account | None, timeout_seconds: float
) -> tuple[Account, Twilio]:
    """The account by its code, as of this attempt. Ends the attempt when it is missing."""
    stored = attempt.config.get(ACCOUNT, message.account)
    if stored is not None:
        assert isinstance(stored.body, Account)
        account, tokens = (
            stored.body,
            await attempt.config.secrets(ACCOUNT, message.account, "auth_token"),
        )
    elif declared is None or message.account != DEFAULT:
        raise ConfigMissing(ACCOUNT, message.account, "account_missing")
    else:
        account, tokens = declared, _referenced(declared.auth_token, attempt)
    if not tokens:
        detail = (
            "the vault has no auth_token"
            if stored is not None
            else "the variable that the program names is not set"
        )
        raise CredentialRefused(f"{ACCOUNT}/{message.account}", SECRET_MISSING, detail)
    if account.sender is None and account.messaging_service_sid is None:
        raise AttemptEnded(
            Rejected(
                "sender_missing", f"the {ACCOUNT} has neither a sender nor a messaging_service_sid"
            )
        )
    return account, Twilio(attempt.http, account, tokens[0], timeout_seconds)


def _referenced(token: str, attempt: Attempt) -> list[str]:
    try:
        return [attempt.config.reference(token)]
    except KeyError:
        return []


def _number(message: Message, account: Account) -> str:
    number = e164(message.to, account.default_region)
    if number is None:
        raise AttemptEnded(Rejected("invalid_recipient", NOT_A_NUMBER))
    return number


async def _refuse_suppressed(to: str, attempt: Attempt) -> None:
    """End the attempt if the number is suppressed."""
    assert attempt.records is not None
    try:
        found = await suppressions(attempt.records, ADDRESSES, [to])
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None
    if to in found:
        raise AttemptEnded(Rejected("suppressed", f"the number is suppressed: {found[to].reason}"))


async def _body(message: Message, attempt: Attempt) -> str:
    """The text. Ends the attempt when there is none."""
    body = message.body or ""
    if message.template is not None:
        body = (
            await attempt.templates.render(message.template, message.data, message.locale)
        ).parts.get("text", "")
    if not body:
        raise AttemptEnded(Rejected("no_text", "no body, and no text in the template"))
    if len(body) > BODY_LENGTH_MAX:
        raise AttemptEnded(Rejected("body_too_long", f"more than {BODY_LENGTH_MAX} characters"))
    return body


def _limit(message: Message, account: Account) -> Limit:
    return Limit(f"sms/{message.account}", account.per_second, _BURST)


async def _ending(
    response: HttpResponse, message: Message, attempt: Attempt, account: Account
) -> Outcome:
    """The ending of an attempt that Twilio refused. Limits and refused credentials concern all
    requests of the account.
    """
    meaning, reason = meaning_of(response) or (None, "")
    retry_after = attempt.http.retry_after(response)
    if meaning == "credential":
        raise CredentialRefused(
            f"{ACCOUNT}/{message.account}", reason, f"Twilio answered {response.status}"
        )
    if meaning == "throttled":
        seconds = THROTTLED_SECONDS if retry_after is None else retry_after
        await attempt.limits.close(_limit(message, account).name, seconds)
        raise Postponed(seconds)
    return outcome_of(response, retry_after)


def notices(declared: Account | None) -> Notices:
    def error(number: str, config: TenantConfig) -> str:
        account = getattr(config.find(ACCOUNT, DEFAULT), "body", declared)
        if not isinstance(account, Account):
            return f"there is no {ACCOUNT} {DEFAULT}"
        return (
            "" if e164(number, account.default_region) is not None else f"the number {NOT_A_NUMBER}"
        )

    return Notices(_write, error)


def _write(number: str, notice: Notice) -> Payload:
    return Message(number, notice.text[:BODY_LENGTH_MAX])
