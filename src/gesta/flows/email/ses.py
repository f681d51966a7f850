"""Handing a letter in by Amazon SES v2, and what its answer means (D-9).

| SES says                                                              | what follows
|
|-----------------------------------------------------------------------|-----------------------------------------------------------------------|
| a MessageId                                                           | Done
|
| too many requests, sending rate exceeded                              | the account rests for a
second; no attempt is spent                   |
| daily quota exceeded                                                  | the account rests for ten
minutes at a time; no attempt is spent      |
| account suspended, sending paused, 401, 403 and refused signatures    | the account is held until
it changes                                  |
| From domain not verified, no such configuration set                   | the same: every letter of
this sender would fail                      |
| MessageRejected, BadRequest, any other 4xx                            | Rejected
|
| LimitExceeded                                                         | Retry
|
| 5xx, no answer after sending                                          | Unknown
|

SES has no idempotency key and gives every letter a Message-ID of its own. So after an Unknown a
second letter is possible; each carries our
`X-Outbox-Id` and the tag `outboxId`, by which SES's own events tell them apart.
"""

from __future__ import annotations

from typing import Any

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.flows.email.aws import Account, AwsClients, AwsError
from gesta.flows.email.sender import Sender, credential
from gesta.outbound.smtp import Envelope

RATE_SECONDS = 1.0
#: Amazon counts the last 24 hours, so letters become possible again one by one; it advises to wait
#: up to ten minutes.
QUOTA_SECONDS = 600.0
_HELD = frozenset(
    """AccountSuspendedException SendingPausedException AccountSendingPausedException
    ConfigurationSetSendingPausedException MailFromDomainNotVerifiedException NotFoundException
    ConfigurationSetDoesNotExistException AccessDenied AccessDeniedException
    UnrecognizedClientException InvalidClientTokenId SignatureDoesNotMatch
    InvalidSignatureException ExpiredToken ExpiredTokenException IncompleteSignature
    MissingAuthenticationToken MissingAuthenticationTokenException NotAuthorized OptInRequired""".split()
)
_THROTTLED = frozenset(
    {"TooManyRequestsException", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
)
_REASONS = {"MessageRejected": "message_rejected", "BadRequestException": "bad_request"}


async def send_by_ses(
    attempt: Attempt,
    clients: AwsClients,
    sender: Sender,
    secret: str,
    code: str,
    envelope: Envelope,
    cc: list[str],
    tags: list[str],
) -> str | Outcome:
    """SES's id of the letter; or the outcome, when it was not taken."""
    account = Account(sender.region, sender.access_key_id, secret, sender.endpoint_url)
    copies = set(cc)
    destination = {
        "ToAddresses": [envelope.to],
        "CcAddresses": [one for one in envelope.copies if one in copies],
        "BccAddresses": [one for one in envelope.copies if one not in copies],
    }
    arguments: dict[str, Any] = {
        "FromEmailAddress": envelope.sender,
        "Destination": {name: found for name, found in destination.items() if found},
        "Content": {"Raw": {"Data": envelope.message}},
        "EmailTags": [
            {"Name": "outboxId", "Value": attempt.request_id},
            *({"Name": f"tag{n}", "Value": tag} for n, tag in enumerate(tags, 1)),
        ],
    }
    if sender.configuration_set:
        arguments["ConfigurationSetName"] = sender.configuration_set
    try:
        answer = await clients.call(attempt.http, "sesv2", account, "send_email", arguments)
    except AwsError as error:
        return await _after_error(error, attempt, code)
    found = answer.get("MessageId")
    return (
        found
        if isinstance(found, str) and found
        else Unknown("bad_answer", "answered without a MessageId")
    )


async def _after_error(error: AwsError, attempt: Attempt, code: str) -> Outcome:
    name, status, detail = error.code, error.status, error.detail
    if name in _THROTTLED or status == 429:
        seconds = QUOTA_SECONDS if "quota" in error.text.lower() else RATE_SECONDS
        await attempt.limits.close(limit_name(code), seconds)
        raise Postponed(seconds)
    if name in _HELD or status in (401, 403):
        raise CredentialRefused(credential(code), _held_reason(name), detail)
    if name == "LimitExceededException":
        return Retry("limit_exceeded", detail)
    if 400 <= status < 500:
        return Rejected(_REASONS.get(name, "ses_4xx"), detail)
    return Unknown("ses_5xx" if status >= 500 else "bad_answer", detail)


def _held_reason(name: str) -> str:
    if "Paused" in name or "Suspended" in name:
        return "sending_paused"
    return (
        "sender_misconfigured"
        if name in ("MailFromDomainNotVerifiedException", "NotFoundException")
        else "login_refused"
    )


def limit_name(code: str) -> str:
    """The bucket of an account."""
    return f"email/{code}"
