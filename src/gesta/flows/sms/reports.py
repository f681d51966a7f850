"""Status callbacks of Twilio: whether a text was delivered.

- `delivered`, `read`: delivered.
- `undelivered`, `failed`: bounced, with a reason for ErrorCode; permanent where that is so.
- `queued`, `sending`, `sent` and similar: ignored, because more is on record already.

The callback URL names the account and the request. Twilio signs the URL and the posted fields with
HMAC-SHA1 under the account's token, so neither can be changed, and no list of Twilio's ids is kept.
No address is suppressed: Twilio keeps its own list for STOP and START.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, quote

from gesta.domain.commands import RecordReceipt
from gesta.domain.ids import REQUEST_ID
from gesta.errors import InvalidSignature
from gesta.flows.attempt import Attempt
from gesta.flows.sms.message import ACCOUNT, DEFAULT, Account
from gesta.intake.provider_reports import Incoming, ProviderReport, ReportContext, Reporting
from gesta.tenants.config import Entity

PROVIDER: Final = "twilio"
FIELDS_MAX: Final = 100
BODY_BYTES_MAX: Final = 16 * 1024
#: ErrorCode → reason, and whether the number will never accept a text.
_REASONS: Final[dict[str, tuple[str, bool]]] = {
    "30003": ("unreachable", False),
    "30004": ("blocked", False),
    "30005": ("unknown_number", True),
    "30006": ("no_mobile_number", True),
    "30007": ("filtered", False),
    "30008": ("unknown_error", False),
    "21610": ("unsubscribed", False),
}
_ARRIVED: Final = frozenset({"delivered", "read"})
_LOST: Final = frozenset({"undelivered", "failed"})


async def callback_url(attempt: Attempt, code: str, account: Account) -> str | None:
    """The callback URL of this request; None where reports could not be verified, or the base URL
    is not configured.
    """
    if not attempt.report_to or "/" in code:
        # A slash in a path is one, even when escaped.
        return None
    if account.api_key_sid is not None and not await attempt.config.secrets(
        ACCOUNT, code, "callback_token"
    ):
        return None
    return _url(attempt.report_to, attempt.tenant, code, attempt.request_id)


def _url(address: str, tenant: str, code: str, request_id: str) -> str:
    return f"{address}/{PROVIDER}/{quote(tenant, safe='')}/{quote(code, safe='')}/{request_id}"


def reporting(declared: Account | None) -> Reporting:
    """`declared`: the account that the program declares."""

    async def read(incoming: Incoming, context: ReportContext) -> Sequence[ProviderReport]:
        signature = (incoming.header("x-twilio-signature") or "").encode(errors="replace")
        if (
            len(incoming.parts) != 2
            or not signature
            or len(incoming.body) > BODY_BYTES_MAX
            or not context.address
        ):
            raise InvalidSignature
        code, request_id = incoming.parts
        if not REQUEST_ID.fullmatch(request_id):
            raise InvalidSignature
        account, tokens = await _tokens(code, declared, context)
        fields = _fields(incoming.body)
        signed = _url(context.address, incoming.tenant, code, request_id) + "".join(
            name + value for name, value in fields
        )
        # All are compared, each in constant time. An empty token is excluded, because anybody could
        # sign with it.
        matches = [
            hmac.compare_digest(_signature(token, signed), signature) for token in tokens if token
        ]
        found = dict(fields)
        if not any(matches) or found.get("AccountSid") != account.account_sid:
            raise InvalidSignature
        report = _report(found)
        return [] if report is None else [ProviderReport(request_id, report)]

    return Reporting(PROVIDER, read)


async def _tokens(
    code: str, declared: Account | None, context: ReportContext
) -> tuple[Account, list[str]]:
    """The account and the tokens that may sign its callbacks: the newest, and for a day the one
    before.
    """
    stored = context.config.find(ACCOUNT, code)
    if isinstance(stored, Entity):
        account = stored.body
        assert isinstance(account, Account)
        field = "auth_token" if account.api_key_sid is None else "callback_token"
        return account, await context.config.secrets(ACCOUNT, code, field)
    if stored is not None or declared is None or code != DEFAULT:
        raise InvalidSignature
    try:
        return declared, [context.config.reference(declared.auth_token)]
    except KeyError:
        raise InvalidSignature from None


def _fields(body: bytes) -> list[tuple[str, str]]:
    """The posted fields in the order in which they are signed."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:
        raise InvalidSignature from None
    return sorted(set(pairs))


def _signature(token: str, signed: str) -> bytes:
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), hashlib.sha1))


def _report(fields: dict[str, str]) -> RecordReceipt | None:
    sid, status = fields.get("MessageSid", "")[:64], fields.get("MessageStatus", "")
    name = f"twilio/{sid}/{status}"
    if status in _ARRIVED:
        return RecordReceipt("delivered", name, sid)
    if status not in _LOST:
        return None
    reason, permanent = _REASONS.get(fields.get("ErrorCode", ""), (status, False))
    return RecordReceipt("bounced", name, sid, reason, permanent)
