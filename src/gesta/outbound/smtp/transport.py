"""Port: send one e-mail to one server, without retries; every error has a name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gesta.flows.deferrals import Postponed
from gesta.outbound.http.transport import REMEDIES as HTTP_REMEDIES
from gesta.runtime.clock import Runtime

#: The stage of the SMTP session that decided. Before `data`, nothing was sent; at `data`, the
#: server answers for the whole message.
Stage = Literal["connect", "login", "sender", "recipient", "data"]
#: Why there is no answer. A closed set: it is the label of a metric and the reason in an event.
MailErrorReason = Literal[
    "private_address",  # the guard refused the address
    "plain_smtp",  # no TLS to an address that the guard does not name
    "dns",
    "refused",
    "unreachable",
    "tls",
    "connect_timeout",
    "timeout",
    "reset",
    "bad_answer",  # something came back that is no SMTP
    "unsendable",  # the server cannot be asked this way at all: no AUTH, a name that is none
]
REMEDIES: dict[str, str] = {
    **HTTP_REMEDIES,
    "unsendable": (
        ": the server does not offer the login that the sender needs, or its name is not valid"
    ),
    "tls": (
        ": the server does not offer STARTTLS, or its certificate is not valid; tls=none works"
        " without it, for hosts that GESTA_ALLOW_PRIVATE of the worker names"
    ),
    "plain_smtp": (
        ": without TLS, gesta calls only hosts that GESTA_ALLOW_PRIVATE of the worker names"
    ),
}


@dataclass(frozen=True, slots=True)
class MailServer:
    """An SMTP server and its account. `repr` shows no credential."""

    host: str
    port: int
    tls: Literal["starttls", "tls", "none"] = "starttls"
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    #: For each step: connecting, each command, the answer to the message.
    timeout_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message and its addresses, which are personal: `repr` shows none of them."""

    sender: str = field(repr=False)
    #: If the server refuses this address, nothing is sent.
    to: str = field(repr=False)
    #: Further recipients; a refused one does not stop the others.
    copies: tuple[str, ...] = field(default=(), repr=False)
    #: The bytes as they go over the wire, CRLF at each line's end.
    message: bytes = field(default=b"", repr=False)
    #: The Message-ID, the same for every attempt.
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class MailReply:
    """What a server said.

    Its text may quote an address, so it is for classifying only, never for a log.
    """

    code: int
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class MailAnswer:
    """The reply that decided, at which stage it came, and copies that were refused on the way."""

    stage: Stage
    reply: MailReply
    refused: Mapping[str, MailReply] = field(default_factory=dict, repr=False)

    @property
    def is_accepted(self) -> bool:
        return self.stage == "data" and 200 <= self.reply.code < 300


class MailError(Exception):
    """There is no answer. `sent`: the server may have the message."""

    def __init__(self, reason: MailErrorReason, *, sent: bool) -> None:
        done = "the message may have been accepted" if sent else "nothing was sent"
        self.detail = f"{done}{REMEDIES.get(reason, '')}"
        super().__init__(f"{reason}, {self.detail}")
        self.reason: MailErrorReason = reason
        self.sent = sent


class MailTransport(Protocol):
    """Sends messages. One session for each call: the engine decides about retries."""

    async def send(self, server: MailServer, envelope: Envelope) -> MailAnswer:
        """The server's answer. Raises MailError when there is none."""

    async def close(self) -> None: ...


class NoMail:
    """Sends nothing, for environments without e-mail."""

    async def send(self, server: MailServer, envelope: Envelope) -> MailAnswer:
        raise MailError("unreachable", sent=False)

    async def close(self) -> None:
        """Nothing is open."""


class Mail:
    """`attempt.mail`: sends the e-mail of one attempt."""

    __slots__ = ("_runtime", "_transport", "has_sent", "last")

    def __init__(self, transport: MailTransport, runtime: Runtime) -> None:
        self._transport, self._runtime = transport, runtime
        #: The server may have got a message of this attempt.
        self.has_sent = False
        #: The last answer.
        self.last: MailAnswer | None = None

    async def send(self, server: MailServer, envelope: Envelope) -> MailAnswer:
        had_sent, self.has_sent = self.has_sent, True
        try:
            self.last = answer = await self._transport.send(server, envelope)
        except MailError as error:
            self.has_sent = had_sent or error.sent
            raise
        except Postponed:
            self.has_sent = had_sent
            raise
        return answer

    def now_ms(self) -> int:
        return self._runtime.now_ms()
