"""Who sends a tenant's e-mails (config of kind `email.sender`, by code), and what answers mean.

SMTP:

- 2xx to the message: Done. Copies that were refused on the way become warnings.
- 530, 534, 535, 538 at login, 5.7.8 at login or sender: the account is held until it changes.
- 4xx: Retry. 4.7.x (throttled) also closes the account for a while.
- 5.1.1, 5.1.2, 5.1.3, 5.1.10 for `to`: Rejected `invalid_email`. 5.1.1 also puts the address on the
  suppression list.
- Any other 5xx: Rejected.
- No connection, or lost before DATA: Retry, nothing was sent. Lost after DATA: Unknown.

Amazon SES v2 (D-9):

- A MessageId: Done.
- Too many requests, sending rate exceeded: the account rests for a second; no attempt is spent.
- Daily quota exceeded: the account rests for ten minutes at a time; no attempt is spent.
- Account suspended, sending paused, 401, 403, refused signatures, From domain not verified, no such
  configuration set: the account is held until it changes.
- MessageRejected, BadRequest, any other 4xx: Rejected. LimitExceeded: Retry.
- 5xx, no answer after sending: Unknown. SES has no idempotency key and gives every e-mail a
  Message-ID of its own, so a second one is possible. Each carries our `X-Outbox-Id` and the tag
  `outboxId`, by which SES's own events tell them apart.
"""

import re
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import ConfigMissing, CredentialRefused, Postponed
from gesta.flows.email.aws import AwsAccount, AwsClients, AwsError
from gesta.flows.flow import ConfigBody, Secret
from gesta.outbound.http import AttemptEnded
from gesta.outbound.rate_limits import PerSecond
from gesta.outbound.smtp import Envelope, MailAnswer, MailError, MailReply

SENDER = "email.sender"
#: E-mails per second for one sender by default (R2-35).
PER_SECOND = 100.0


class Sender(ConfigBody, frozen=True):
    """An account for SMTP (`host` …) or Amazon SES (`region` …)."""

    # Amazon's secret signs and is never sent.
    sent_to: ClassVar = {"password": ("host",)}

    kind: Literal["smtp", "ses"]
    from_address: Annotated[
        str,
        msgspec.Meta(
            min_length=3,
            max_length=254,
            pattern=r"^[^@\s]+@[^@\s]+$",
            examples=["shop@example.com"],
        ),
    ]
    from_name: Annotated[
        str,
        msgspec.Meta(
            max_length=100, pattern=r"^((?!=\?)[^\x00-\x1f\x7f-\x9f])*$", examples=["Shop"]
        ),
    ] = ""
    #: SMTP.
    host: Annotated[
        str,
        msgspec.Meta(max_length=253, pattern=r"^[A-Za-z0-9.:-]*$", examples=["smtp.example.com"]),
    ] = ""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: Secret[str] = ""
    #: SES.
    region: Annotated[
        str, msgspec.Meta(max_length=40, pattern=r"^[a-z0-9-]*$", examples=["eu-west-1"])
    ] = ""
    access_key_id: str = ""
    secret_access_key: Secret[str] = ""
    configuration_set: str = ""
    #: SNS topics that report on this sender's e-mails; all others are refused.
    report_topics: list[
        Annotated[
            str,
            msgspec.Meta(
                max_length=256,
                pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$",
                examples=["arn:aws:sns:eu-west-1:123456789012:reports"],
            ),
        ]
    ] = msgspec.field(default_factory=list)
    #: Another address than Amazon's, for tests.
    endpoint_url: Annotated[
        str,
        msgspec.Meta(pattern=r"^(https?://[^\s/?#]+.*)?$", examples=["https://email.example.com"]),
    ] = ""
    per_second: PerSecond = PER_SECOND

    def __repr__(self) -> str:
        return f"Sender({self.kind})"


def credential(code: str) -> str:
    return f"{SENDER}/{code}"


def sender_of(attempt: Attempt, code: str) -> Sender:
    """The account of the e-mail. Ends the attempt when the tenant has none of that code."""
    entity = attempt.config.get(SENDER, code)
    if entity is None:
        raise ConfigMissing(SENDER, code, "sender_missing")
    sender = entity.body
    assert isinstance(sender, Sender)
    if (sender.kind == "smtp" and not sender.host) or (sender.kind == "ses" and not sender.region):
        needed = "host" if sender.kind == "smtp" else "region"
        raise AttemptEnded(Retry("bad_config", f"the {SENDER} has no {needed}; put it again"))
    return sender


async def secret_of(attempt: Attempt, code: str, field: str) -> str:
    """Empty when there is none."""
    found = await attempt.config.secrets(SENDER, code, field)
    return found[0] if found else ""


#: How long the account is closed after a throttled answer; the throttled request waits longer, by
#: its schedule.
THROTTLED_SECONDS = 1.0
#: The address itself is refused, so a retry cannot help.
_HOPELESS = frozenset({"private_address", "plain_smtp", "unsendable"})
_ENHANCED = re.compile(r"^\s*([245])\.(\d{1,3})\.(\d{1,3})\b")
_LOGIN_REFUSED = frozenset({530, 534, 535, 538})
#: The mailbox or its domain does not exist, or the address is invalid.
_BAD_ADDRESS = frozenset({(1, 1), (1, 2), (1, 3), (1, 10)})
#: Codes that may be part of a reason. Reasons are labels of a metric, so a server must not be able
#: to invent them.
_NAMED = frozenset({421, 450, 451, 452, 454, 550, 551, 552, 553, 554})


class SmtpVerdict(msgspec.Struct, frozen=True):
    """`outcome` is None when the e-mail was accepted."""

    outcome: Outcome | None = None
    #: `to` has no mailbox: suppress it.
    suppress: bool = False
    #: How long the account is closed.
    close_seconds: float = 0.0


def after_mail_error(error: MailError) -> Outcome:
    """The outcome of an attempt without an answer."""
    if error.sent:
        return Unknown(error.reason, error.detail)
    return (
        Rejected(error.reason, error.detail)
        if error.reason in _HOPELESS
        else Retry(error.reason, error.detail)
    )


def verdict_of(answer: MailAnswer, sender_code: str) -> SmtpVerdict:
    """Raises CredentialRefused when the account is refused."""
    reply = answer.reply
    if answer.is_accepted:
        return SmtpVerdict()
    enhanced = _enhanced(reply)
    more = "" if enhanced is None else f" {reply.code // 100}.{enhanced[0]}.{enhanced[1]}"
    detail = f"answered {reply.code}{more} at {answer.stage}"
    if reply.code in _LOGIN_REFUSED or (
        reply.code >= 500 and answer.stage in ("login", "sender") and enhanced == (7, 8)
    ):
        raise CredentialRefused(credential(sender_code), "login_refused", detail)
    if 400 <= reply.code < 500:
        is_throttled = enhanced is not None and enhanced[0] == 7
        after = THROTTLED_SECONDS if is_throttled else 0.0
        return SmtpVerdict(
            Retry("throttled" if is_throttled else _reason(reply), detail, after),
            close_seconds=after,
        )
    if reply.code < 500:
        # Neither accepted nor refused: the e-mail may have been sent.
        return SmtpVerdict(
            Unknown("bad_answer", detail) if answer.stage == "data" else Retry("bad_answer", detail)
        )
    if enhanced in _BAD_ADDRESS and answer.stage in ("recipient", "data"):
        return SmtpVerdict(Rejected("invalid_email", detail), suppress=enhanced == (1, 1))
    return SmtpVerdict(Rejected(_reason(reply), detail))


def _enhanced(reply: MailReply) -> tuple[int, int] | None:
    """The enhanced status code (RFC 3463), where it matches the reply code."""
    match = _ENHANCED.match(reply.text)
    if match is None or int(match[1]) != reply.code // 100:
        return None
    return int(match[2]), int(match[3])


def _reason(reply: MailReply) -> str:
    return f"smtp_{reply.code}" if reply.code in _NAMED else f"smtp_{reply.code // 100}xx"


RATE_SECONDS = 1.0
#: Amazon counts the last 24 hours, so the quota recovers gradually; it advises to wait up to ten
#: minutes.
QUOTA_SECONDS = 600.0
_HELD = frozenset(
    """AccountSuspendedException SendingPausedException AccountSendingPausedException
    ConfigurationSetSendingPausedException MailFromDomainNotVerifiedException NotFoundException
    ConfigurationSetDoesNotExistException AccessDenied AccessDeniedException
    UnrecognizedClientException InvalidClientTokenId SignatureDoesNotMatch
    InvalidSignatureException ExpiredToken ExpiredTokenException IncompleteSignature
    MissingAuthenticationToken MissingAuthenticationTokenException NotAuthorized
    OptInRequired""".split()
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
    """SES's id of the e-mail; or the outcome when it was not accepted."""
    account = AwsAccount(sender.region, sender.access_key_id, secret, sender.endpoint_url)
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
