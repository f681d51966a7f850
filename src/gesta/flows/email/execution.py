"""One attempt to send an e-mail: validate, fetch its body, upsert its recipient, send, return the
outcome (R2-32).
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from gesta.domain.outcome import Done, Outcome, Rejected, Retry
from gesta.errors import StoreError
from gesta.flows.attempt import Attempt
from gesta.flows.deferrals import SECRET_MISSING, CredentialRefused
from gesta.flows.email.aws import AwsClients
from gesta.flows.email.bodies import content_of
from gesta.flows.email.composing import compose
from gesta.flows.email.contract import note
from gesta.flows.email.keeping import OthersRecipient, upsert
from gesta.flows.email.message import ADDRESSES, Message, ascii_address
from gesta.flows.email.rules import errors_of
from gesta.flows.email.sender import (
    Sender,
    after_mail_error,
    credential,
    limit_name,
    secret_of,
    send_by_ses,
    sender_of,
    verdict_of,
)
from gesta.outbound.http import AttemptEnded
from gesta.outbound.rate_limits import Limit
from gesta.outbound.smtp import Envelope, MailError, MailServer
from gesta.runtime.redaction import scrub
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.suppression import suppress, suppressions


class Copies(msgspec.Struct, frozen=True):
    """Who gets a copy, and how many do not."""

    cc: list[str]
    bcc: list[str]
    left_out: dict[str, int]


def executor(
    files: Path | None, clients: AwsClients, timeout_seconds: float
) -> Callable[[Message, Attempt], Awaitable[Outcome]]:

    async def execute(message: Message, attempt: Attempt) -> Outcome:
        _check_again(message)
        sender = sender_of(attempt, message.sender)
        # Before anything is fetched, because a request without a token waits. A token allows one
        # e-mail.
        await attempt.limits.take(
            Limit(
                limit_name(message.sender),
                sender.per_second,
                burst=max(1, round(sender.per_second)),
            )
        )
        copies = await _copies(message, attempt)
        content = await content_of(message, attempt, files, clients)
        recipient_id = await _recipient(message, attempt)
        try:
            email = compose(
                message,
                content,
                key=attempt.key,
                outbox_id=attempt.request_id,
                from_address=sender.from_address,
                from_name=sender.from_name,
                cc=copies.cc,
                sent_at_ms=attempt.at_ms,
            )
        except ValueError:
            return Rejected("unsendable", "a header of the e-mail cannot be written")
        envelope = Envelope(
            ascii_address(sender.from_address),
            ascii_address(message.to),
            tuple(ascii_address(address) for address in (*copies.cc, *copies.bcc)),
            email.message,
            email.message_id,
        )
        sent = await _send(message, attempt, sender, envelope, copies, clients, timeout_seconds)
        if not isinstance(sent, tuple):
            return sent
        provider_id, refused = sent
        assert attempt.mail is not None
        return Done(
            provider_id,
            recipient_id,
            note(attempt.mail.now_ms() - attempt.at_ms, copies.left_out | refused),
        )

    return execute


def _check_again(message: Message) -> None:
    """Validate again: other code may have accepted the request."""
    errors = errors_of(message)
    if errors:
        text = "; ".join(f"{name}: {error}" for name, error in errors.items())
        raise AttemptEnded(Rejected("invalid_email" if "to" in errors else "invalid_request", text))


def _records(attempt: Attempt) -> TenantRecords:
    assert attempt.records is not None
    return attempt.records


async def _copies(message: Message, attempt: Attempt) -> Copies:
    """Copies without suppressed addresses. Ends the attempt when `to` is suppressed."""
    try:
        found = await suppressions(
            _records(attempt), ADDRESSES, [message.to, *message.cc, *message.bcc]
        )
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None
    if message.to in found:
        raise AttemptEnded(
            Rejected("suppressed", f"the address is suppressed: {found[message.to].reason}")
        )
    cc, bcc = ([one for one in given if one not in found] for given in (message.cc, message.bcc))
    return Copies(
        cc,
        bcc,
        {"ccSuppressed": len(message.cc) - len(cc), "bccSuppressed": len(message.bcc) - len(bcc)},
    )


async def _recipient(message: Message, attempt: Attempt) -> str:
    try:
        return await upsert(_records(attempt), message)
    except OthersRecipient:
        raise AttemptEnded(
            Rejected("recipient_not_found", "the tenant has no recipient of this recipientId")
        ) from None
    except StoreError as error:
        raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None


async def _send(
    message: Message,
    attempt: Attempt,
    sender: Sender,
    envelope: Envelope,
    copies: Copies,
    clients: AwsClients,
    timeout_seconds: float,
) -> tuple[str, dict[str, int]] | Outcome:
    """The provider's id of the e-mail and how many copies it refused; or the outcome if it was not
    accepted.
    """
    if sender.kind == "ses":
        secret = await secret_of(attempt, message.sender, "secret_access_key")
        if not secret or not sender.access_key_id:
            raise CredentialRefused(
                credential(message.sender),
                SECRET_MISSING,
                "the sender has no access_key_id or no secret_access_key",
            )
        cc = [ascii_address(address) for address in copies.cc]
        found = await send_by_ses(
            attempt, clients, sender, secret, message.sender, envelope, cc, message.tags
        )
        return (found, {}) if isinstance(found, str) else found
    password = await secret_of(attempt, message.sender, "password") if sender.user else ""
    server = MailServer(
        sender.host, sender.port, sender.tls, sender.user, password, timeout_seconds
    )
    assert attempt.mail is not None
    try:
        answer = await attempt.mail.send(server, envelope)
    except MailError as error:
        return after_mail_error(error)
    verdict = verdict_of(answer, message.sender)
    if verdict.close_seconds:
        await attempt.limits.close(limit_name(message.sender), verdict.close_seconds)
    if verdict.suppress:
        await _suppress(attempt, message.to)
    if verdict.outcome is not None:
        return verdict.outcome
    refused_cc = sum(ascii_address(address) in answer.refused for address in copies.cc)
    refused = {"ccRefused": refused_cc, "bccRefused": len(answer.refused) - refused_cc}
    return envelope.message_id, refused


async def _suppress(attempt: Attempt, address: str) -> None:
    assert attempt.mail is not None
    try:
        await suppress(
            _records(attempt),
            ADDRESSES,
            address,
            "no such mailbox (5.1.1)",
            attempt.mail.now_ms(),
            "answer of the mail server",
        )
    except StoreError:
        # The e-mail is refused anyway; the next one to this address records it.
        return
