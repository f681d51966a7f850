"""Handing a letter in by SMTP, and what the server's answer means (D-11).

| the server says                                            | outcome
|
|------------------------------------------------------------|--------------------------------------------------------------------------|
| 2xx to the letter                                          | Done; copies that were refused on the
way are told as warnings           |
| 530, 534, 535, 538 at login                                | the account is held until it changes
|
| 421, 450, 451, 452, 454, any other 4xx                     | Retry
|
| 4.7.x (throttled)                                          | Retry, and nobody uses the account
for a while                           |
| 5.1.1, 5.1.2, 5.1.3, 5.1.10 for `to`                       | Rejected `invalid_email`; 5.1.1 also
puts the address on the list        |
| 5.7.x at the sender: 5.7.8 (credentials), 5.7.0, 530       | the account is held
|
| any other 5xx                                              | Rejected
|
| no connection, or lost before DATA                         | Retry: nothing was sent
|
| lost after DATA                                            | Unknown
|
"""

from __future__ import annotations

import re

import msgspec

from gesta.domain.outcome import Outcome, Rejected, Retry, Unknown
from gesta.flows.deferrals import CredentialRefused
from gesta.flows.email.sender import credential
from gesta.outbound.smtp import MailAnswer, MailFault, MailReply

#: After a throttled answer nobody uses the account for so long; whom it was said to waits longer
#: each time, by the schedule.
THROTTLED_SECONDS = 1.0
#: Asking again cannot help: the address itself is refused.
_HOPELESS = frozenset({"private_address", "plain_smtp", "unsendable"})
_ENHANCED = re.compile(r"^\s*([245])\.(\d{1,3})\.(\d{1,3})\b")
_LOGIN_REFUSED = frozenset({530, 534, 535, 538})
#: The mailbox or its domain does not exist, or the address is none.
_BAD_ADDRESS = frozenset({(1, 1), (1, 2), (1, 3), (1, 10)})
#: Codes that may be part of a reason: reasons are labels of a metric, so a server must not be able
#: to invent them.
_NAMED = frozenset({421, 450, 451, 452, 454, 550, 551, 552, 553, 554})


class SmtpVerdict(msgspec.Struct, frozen=True):
    """What an answer means. `outcome` is None when the letter was taken."""

    outcome: Outcome | None = None
    #: `to` has no mailbox: no more letters to it.
    suppress: bool = False
    #: Nobody should use the account for so long.
    close_seconds: float = 0.0


def after_mail_fault(fault: MailFault) -> Outcome:
    """What an attempt came to that got no answer."""
    if fault.sent:
        return Unknown(fault.reason, fault.detail)
    return (
        Rejected(fault.reason, fault.detail)
        if fault.reason in _HOPELESS
        else Retry(fault.reason, fault.detail)
    )


def verdict_of(answer: MailAnswer, sender_code: str) -> SmtpVerdict:
    """What an answer means. Raises CredentialRefused when the account itself is refused."""
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
        # Neither yes nor no: whether a letter went out with it nobody can say.
        return SmtpVerdict(
            Unknown("bad_answer", detail) if answer.stage == "data" else Retry("bad_answer", detail)
        )
    if enhanced in _BAD_ADDRESS and answer.stage in ("recipient", "data"):
        return SmtpVerdict(Rejected("invalid_email", detail), suppress=enhanced == (1, 1))
    return SmtpVerdict(Rejected(_reason(reply), detail))


def _enhanced(reply: MailReply) -> tuple[int, int] | None:
    """Subject and detail of the enhanced status code (RFC 3463), where it fits the plain one."""
    match = _ENHANCED.match(reply.text)
    if match is None or int(match[1]) != reply.code // 100:
        return None
    return int(match[2]), int(match[3])


def _reason(reply: MailReply) -> str:
    return f"smtp_{reply.code}" if reply.code in _NAMED else f"smtp_{reply.code // 100}xx"
