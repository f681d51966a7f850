"""notification.email: one e-mail for each request, by SMTP or Amazon SES. See docs/email.md.

`message.py` is the payload, `rules.py` its validation, `contract.py` the job `email:send`,
`execution.py` one attempt, `sender.py` the accounts and the meaning of their answers.

Message-ID is the same for every attempt of an intent (`on_unknown="resend"`), so a mailbox that
looks at it shows one e-mail. Others may show two after a lost answer: this is the channel's window
for a duplicate. With `flow(on_unknown="manual")` a person decides instead.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from gesta.domain.commands import Rules
from gesta.domain.retry_policy import RetryPolicy
from gesta.errors import BadFlow, MissingExtra
from gesta.flows.email.aws import AwsClients
from gesta.flows.email.bodies import BODIES, Bodies
from gesta.flows.email.contract import (
    EMAIL_JOB_CONFIG,
    JOB_CONTRACT,
    AlreadySent,
    Asked,
    EmailLog,
    JobResult,
    already_sent,
    email_log,
    job_result,
    log_row,
    log_status,
    read_job,
    submit_job,
)
from gesta.flows.email.execution import executor
from gesta.flows.email.keeping import (
    DocumentHash,
    Person,
    document_hash,
    document_hashes,
    drop_body,
    hash_document,
    normal_document,
    recipient,
    rotate_document_key,
    store_body,
    suppress,
    suppressed,
    unsuppress,
)
from gesta.flows.email.message import (
    ADDRESSES,
    DEFAULT,
    NAME,
    SUBJECT_LENGTH_MAX,
    Message,
    Recipient,
    address_error,
    mask_email,
    mask_hash,
)
from gesta.flows.email.reports import reporting
from gesta.flows.email.rules import errors_of
from gesta.flows.email.sender import SENDER, Sender, credential
from gesta.flows.flow import Flow, Notice, Notices, Payload
from gesta.tenants.config import TenantConfig
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates

__all__ = [
    "BODIES",
    "DEFAULT",
    "EMAIL_JOB_CONFIG",
    "NAME",
    "SENDER",
    "AlreadySent",
    "Asked",
    "Bodies",
    "DocumentHash",
    "EmailLog",
    "JobResult",
    "Message",
    "Person",
    "Recipient",
    "Sender",
    "already_sent",
    "document_hash",
    "document_hashes",
    "drop_body",
    "email_log",
    "errors_of",
    "flow",
    "hash_document",
    "job_result",
    "log_row",
    "log_status",
    "mask_email",
    "mask_hash",
    "normal_document",
    "read_job",
    "recipient",
    "rotate_document_key",
    "store_body",
    "submit_job",
    "suppress",
    "suppressed",
    "unsuppress",
]

#: The libraries of the extra `email`.
_NEEDED = ("aiosmtplib", "email_validator", "mrml", "css_inline", "minijinja")
#: S2-6: the waits after attempts 1 to 4 are 1, 5, 30 and 120 s; only a policy of more attempts uses
#: 600 s.
RETRY = RetryPolicy(
    attempts=EMAIL_JOB_CONFIG["MAX_ATTEMPTS"],
    schedule_seconds=tuple(float(seconds) for seconds in EMAIL_JOB_CONFIG["BACKOFF_DELAYS"]),
    schedule_jitter=0.25,
    schedule_shrink=0.25,
)
#: Reasons of this channel that may be labels of a metric.
_REASONS = frozenset(
    """bad_config bad_request bodies_unavailable html_not_found html_too_large html_unreadable
    invalid_email invalid_request limit_exceeded login_refused message_rejected not_installed
    plain_smtp recipient_not_found sender_misconfigured sender_missing sending_paused ses_4xx
    ses_5xx smtp_421 smtp_450 smtp_451 smtp_452 smtp_454 smtp_4xx smtp_550 smtp_551 smtp_552
    smtp_553 smtp_554 smtp_5xx suppressed""".split()
)
#: Lookup, connection, login and the e-mail itself each have the time limit of the server.
_STEPS = 3


def flow(
    *,
    on_unknown: Literal["resend", "manual"] = "resend",
    files: str | None = None,
    timeout_seconds: float = 20.0,
    concurrency: int = 10,
) -> Flow:
    """The channel. Senders, templates and buckets come from the tenant's config.

    `files` is the folder of `file:` references, with one folder for each tenant in it;
    `timeout_seconds` is for each step of a conversation.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise MissingExtra(NAME, ", ".join(missing), "email")
    if on_unknown not in ("resend", "manual"):
        raise BadFlow(
            NAME,
            "on_unknown must be 'resend' or 'manual': gesta cannot ask SMTP or SES what it did",
        )
    folder = None if files is None else Path(files).resolve()
    if folder is not None and not folder.is_dir():
        raise BadFlow(NAME, f"files={files!r} is not a folder")
    return Flow(
        NAME,
        Message,
        executor(folder, AwsClients(), timeout_seconds),
        Rules(RETRY, on_unknown),
        timeout_seconds=timeout_seconds * _STEPS,
        ttl_seconds=EMAIL_JOB_CONFIG["DEFAULT_TTL"] / 1000,
        concurrency=concurrency,
        config={SENDER: Sender, BODIES: Bodies, TEMPLATE: Template},
        example={
            "to": "ada@example.com",
            "subject": "Your receipt",
            "text": "Thank you for your order.",
        },
        dead_letter_seconds=EMAIL_JOB_CONFIG["DLQ_TTL"] / 1000,
        target=_target,
        credential=_credential,
        check=_check,
        request_id=_request_id,
        tags=_tags,
        reasons=_REASONS,
        clear_texts=True,
        effects="attempt",
        stand_ins=lambda _: {
            SENDER: Sender("smtp", "sandbox@example.org", host="sandbox.example.org")
        },
        notices=Notices(_notice, _notice_error),
        reports=reporting(),
        adopts=JOB_CONTRACT,
        addresses=ADDRESSES,
    )


def _target(message: Message) -> str:
    return mask_email(message.to) or ""


def _tags(message: Message, request_id: str) -> Mapping[str, str]:
    """R2-30: masked, enough to recognise the recipient."""
    recipient = message.recipient
    masked = (
        {}
        if recipient is None
        else {
            "recipientEmail": mask_email(recipient.email),
            "cpfCnpjHash": mask_hash(recipient.cpf_cnpj_hash),
        }
    )
    found = {
        "outboxId": request_id,
        "senderCode": message.sender,
        "templateCode": message.template,
        "to": mask_email(message.to),
    }
    return {name: value for name, value in (found | masked).items() if value is not None}


def _credential(message: Message) -> str:
    return credential(message.sender)


def _request_id(message: Message) -> str | None:
    return message.outbox_id


async def _check(
    message: Message, _config: TenantConfig, templates: Templates
) -> Mapping[str, str]:
    """Validate the payload and check that the data has every variable of the template."""
    errors = errors_of(message)
    if errors or message.template is None:
        return errors
    return await templates.missing(message.template, message.data, message.locale)


def _notice(address: str, notice: Notice) -> Payload:
    subject = f"gesta: {notice.title}"
    return Message(address, subject[:SUBJECT_LENGTH_MAX], text=notice.text)


def _notice_error(address: str, config: TenantConfig) -> str:
    if error := address_error(address):
        return f"the address {error}"
    return "" if config.find(SENDER, DEFAULT) is not None else f"there is no {SENDER} {DEFAULT}"
