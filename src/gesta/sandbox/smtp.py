"""A fake of a mail server: accepts e-mails, counts them by Message-ID, and refuses them as servers
do.

`next(status=450)` refuses temporarily, `next(status=550, error="5.1.1")` permanently,
`next(status=535)` at login. `drop=True` accepts the e-mail and loses the answer to its final dot.
`on("cc@example.org", status=550)` refuses one address: a copy alone, or the whole e-mail if it is
`to`. `on("old password", status=535)` refuses a login.
"""

from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, Final

from gesta.outbound.http import HttpRequest
from gesta.outbound.smtp import Envelope, MailAnswer, MailFault, MailReply, MailServer, Stage
from gesta.runtime.clock import Runtime, sleep
from gesta.sandbox.receiver import Call, Effect, Fault, Receiver, Reply

_LOGIN: Final = frozenset({530, 534, 535, 538, 454})
_LETTER: Final = frozenset({552, 554})


def stage_of(code: int) -> Stage:
    """The stage of the conversation at which a server answers this code."""
    if code in _LOGIN:
        return "login"
    if code == 421:
        return "connect"
    return "data" if code in _LETTER else "recipient"


class FakeMailServer(Receiver):
    """The fake behind every mail server.

    An effect's `data` has sender, to, cc, bcc, subject, html and headers; its `text` the text part.
    """

    name = "smtp"

    def serves(self, request: HttpRequest) -> bool:
        return False

    def read(self, request: HttpRequest, now_ms: int) -> Call | Reply:
        return Reply(400)

    def deliver(self, envelope: Envelope, now_ms: int, names: tuple[str, ...] = ()) -> Reply:
        """Accept one e-mail or refuse it. `names` are further names that rules can match, such as a
        password.
        """
        self.calls += 1
        self.now_ms = now_ms
        call = call_of(envelope)
        return self._handle(replace(call, names=(*call.names, *names)))

    def refuses(self, *names: str) -> MailReply | None:
        """The refusal of an address or a login that a rule matches."""
        call = Call(None, "", None, {}, b"", names=names)
        rule = next((rule for rule in self._rules if rule.left != 0 and rule.matches(call)), None)
        if rule is None or not rule.fault.is_refusal:
            return None
        if rule.left is not None:
            rule.left -= 1
        return reply_of(self.refusal(rule.fault))

    def waiting_code(self) -> int | None:
        """The code that will refuse the next e-mail, if any. The conversation must know it before
        it has the e-mail.
        """
        armed = next(iter(self._queue), None)
        return (
            self.refusal(armed.fault).status
            if armed is not None and armed.fault.is_refusal
            else None
        )

    def use_up(self) -> MailReply:
        """Use up the pending refusal before there is an e-mail."""
        self.calls += 1
        return reply_of(self.refusal(self._fault_of(Call(None, "", None, {}, b""))))

    def refusal(self, fault: Fault) -> Reply:
        code = 550 if fault.status is None else fault.status
        return Reply(code, f"{fault.error or f'{code // 100}.0.0'} refused by the sandbox".encode())

    def success(self, effect: Effect) -> Reply:
        return Reply(250, f"2.0.0 queued as {self.performed}".encode())


def call_of(envelope: Envelope) -> Call:
    email = message_from_bytes(envelope.message, policy=default)
    assert isinstance(email, EmailMessage)
    known_as = str(email.get("Message-ID", "")).strip("<>") or None
    named = str(email.get("Cc", ""))
    cc = [address for address in envelope.copies if address in named]
    text, html = (_part(email, kind) for kind in ("plain", "html"))
    data: dict[str, Any] = {
        "sender": envelope.sender,
        "to": envelope.to,
        "cc": cc,
        "bcc": [address for address in envelope.copies if address not in cc],
        "subject": str(email.get("Subject", "")),
        "html": html,
    }
    headers = {name.lower(): str(value) for name, value in email.items()}
    # Without its body, because a repeat has another Date.
    return Call(known_as, "letter", data, headers, b"", text, (envelope.to, envelope.sender))


def _part(email: EmailMessage, kind: str) -> str:
    part = email.get_body((kind,))
    return "" if part is None else str(part.get_content()).replace("\r\n", "\n")


def reply_of(reply: Reply) -> MailReply:
    return MailReply(reply.status, reply.body.decode())


class SandboxMail:
    """A mail transport that delivers to the fake in the same process, on the runtime's clock."""

    def __init__(self, runtime: Runtime, fake: FakeMailServer) -> None:
        self._runtime, self._fake = runtime, fake

    async def send(self, server: MailServer, envelope: Envelope) -> MailAnswer:
        refused = {
            address: said
            for address in envelope.copies
            if (said := self._fake.refuses(address)) is not None
        }
        kept = tuple(address for address in envelope.copies if address not in refused)
        accepted = Envelope(
            envelope.sender, envelope.to, kept, envelope.message, envelope.message_id
        )
        reply = self._fake.deliver(accepted, self._runtime.now_ms(), (server.user, server.password))
        if reply.slow_seconds >= server.timeout_seconds:
            await sleep(self._runtime, server.timeout_seconds)
            raise MailFault("timeout", sent=True)
        if reply.slow_seconds:
            await sleep(self._runtime, reply.slow_seconds)
        if reply.drop:
            raise MailFault("reset", sent=True)
        stage = "data" if reply.status < 400 else stage_of(reply.status)
        return MailAnswer(stage, reply_of(reply), refused)

    async def close(self) -> None:
        """Nothing is open."""
