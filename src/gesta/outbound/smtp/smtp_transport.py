"""The real way out: aiosmtplib, with the guard between every name and its address.

- *Resolve and pin.* A name is looked up for each new connection, its addresses are filtered, and
  the connection goes to one of those
  that passed, with TLS checked against the name.
- *Kept connections.* Those of one server and user are used again for a few seconds. One that the
  server has closed meanwhile fails at
  MAIL, before anything of the message was sent; only then the message goes over a fresh one.
- *What was sent.* Until DATA nothing was. After that, a lost connection means an unknown outcome.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractResolver

from gesta.outbound.http import PrivateAddressGuard
from gesta.outbound.lookups import AresResolver, Lookups
from gesta.outbound.smtp.transport import Envelope, MailAnswer, MailError, MailReply, MailServer
from gesta.runtime.clock import Runtime, spawn, turn

if TYPE_CHECKING:
    from aiosmtplib import SMTP, SMTPResponseException


async def allowed_addresses(
    resolver: AbstractResolver, guard: PrivateAddressGuard, host: str, *, is_plain: bool
) -> list[str]:
    """The addresses of a name that may be reached. Raises MailError when there is none."""
    try:
        found = [entry["host"] for entry in await resolver.resolve(host, 0, socket.AF_UNSPEC)]
    except (OSError, UnicodeError):
        raise MailError("dns", sent=False) from None
    if not found:
        raise MailError("dns", sent=False)
    refusals = [guard.refusal(address, "http" if is_plain else "https") for address in found]
    passed = [address for address, refusal in zip(found, refusals, strict=True) if refusal is None]
    if not passed:
        raise MailError(
            "plain_smtp" if refusals[0] == "plain_http" else "private_address", sent=False
        )
    return passed


async def connected_socket(
    runtime: Runtime, addresses: Sequence[str], port: int, seconds: float
) -> socket.socket:
    """A connection to the first of these addresses that takes one.

    Raises MailError when none does in time.
    """
    # A share each, so that one that swallows everything does not hide the others.
    share, last = seconds / len(addresses), MailError("unreachable", sent=False)
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.settimeout(0)
        try:
            if await _connects(runtime, made, (address, port), share):
                return made
            last = MailError("connect_timeout", sent=False)
        except OSError as error:
            last = MailError(
                "refused" if error.errno == errno.ECONNREFUSED else "unreachable", sent=False
            )
        except BaseException:
            made.close()
            raise
        made.close()
    raise last


async def _connects(
    runtime: Runtime, made: socket.socket, address: tuple[str, int], seconds: float
) -> bool:
    """Whether it completed within the time limit."""
    connecting = spawn(asyncio.get_running_loop().sock_connect(made, address), "gesta-smtp-connect")

    def give_up() -> None:
        connecting.cancel()

    timer = runtime.call_later(seconds, give_up)
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        if connecting.cancelled():
            return False
        # We are the ones who were cut off.
        connecting.cancel()
        raise
    finally:
        timer.cancel()
    return True


#: Shorter than common servers wait for the next command (five minutes by the RFC, often less).
KEEP_SECONDS: Final = 10.0
#: Kept connections of one server and user.
KEEP_MAX: Final = 10

_Account = tuple[str, int, str, str, bytes]


class _Stale(Exception):
    """A kept connection that the server closed while it was idle."""


class SmtpTransport:
    """One SMTP session for each message, to addresses that the guard allows.

    Made inside a running loop, closed in the same one.
    """

    def __init__(
        self,
        guard: PrivateAddressGuard,
        runtime: Runtime,
        *,
        resolver: AbstractResolver | None = None,
        trust: str | None = None,
    ) -> None:
        """`trust` is a file of certificates to be believed beside the system's, for a server with
        one of its own.
        """
        self._guard, self._runtime, self._trust = guard, runtime, trust
        self._given_resolver = resolver
        self._resolver: Lookups | None = None
        self._context: ssl.SSLContext | None = None
        #: Idle connections and since when, the one used last at the end.
        self._kept: dict[_Account, list[tuple[SMTP, float]]] = {}

    async def send(self, server: MailServer, envelope: Envelope) -> MailAnswer:
        account = _account(server)
        client = self._take_kept(account)
        if client is not None:
            try:
                return await self._hand_in(account, client, envelope, is_kept=True)
            except _Stale:
                pass
        made = await self._connect(server)
        return (
            made
            if isinstance(made, MailAnswer)
            else await self._hand_in(account, made, envelope, is_kept=False)
        )

    async def close(self) -> None:
        for kept in self._kept.values():
            for client, _ in kept:
                client.close()
        self._kept.clear()
        # Sockets are closed at the loop's next turn.
        await turn()
        if self._resolver is not None:
            await self._resolver.close()

    async def _hand_in(
        self, account: _Account, client: SMTP, envelope: Envelope, *, is_kept: bool
    ) -> MailAnswer:
        is_done = False
        try:
            answer = await _conversation(client, envelope, is_kept=is_kept)
            is_done = answer.is_accepted and client.is_connected
            return answer
        finally:
            if is_done:
                self._keep(account, client)
            else:
                # In the middle of a session: the next user would continue this one.
                client.close()

    def _take_kept(self, account: _Account) -> SMTP | None:
        kept = self._kept.get(account, [])
        while kept:
            client, since = kept.pop()
            if client.is_connected and self._runtime.monotonic() - since < KEEP_SECONDS:
                return client
            client.close()
        return None

    def _keep(self, account: _Account, client: SMTP) -> None:
        now = self._runtime.monotonic()
        for known, kept in list(self._kept.items()):
            # Idle connections of every account.
            for old, since in kept:
                if now - since >= KEEP_SECONDS:
                    old.close()
            self._kept[known] = [one for one in kept if now - one[1] < KEEP_SECONDS]
            if not self._kept[known]:
                del self._kept[known]
        kept = self._kept.setdefault(account, [])
        if len(kept) < KEEP_MAX:
            kept.append((client, now))
        else:
            client.close()

    async def _connect(self, server: MailServer) -> SMTP | MailAnswer:
        """A connection after login, or the server's refusal."""
        from aiosmtplib import SMTP, SMTPException, SMTPResponseException

        if self._resolver is None:
            self._resolver = Lookups(self._given_resolver or AresResolver())
        addresses = await allowed_addresses(
            self._resolver, self._guard, server.host, is_plain=server.tls == "none"
        )
        made = await connected_socket(self._runtime, addresses, server.port, server.timeout_seconds)
        client = SMTP(
            hostname=server.host,
            sock=made,
            use_tls=server.tls == "tls",
            start_tls=server.tls == "starttls",
            tls_context=None if server.tls == "none" else self._tls(),
            timeout=server.timeout_seconds,
            # An address literal is what a client without a name of its own says.
            local_hostname=_literal(made),
        )
        stage: str = "connect"
        try:
            await client.connect()
            stage = "login"
            if server.user:
                await client.login(server.user, server.password)
        except SMTPResponseException as refusal:
            client.close()
            if refusal.code < 200:
                raise MailError("bad_answer", sent=False) from None
            return MailAnswer(
                "login" if stage == "login" else "connect", MailReply(refusal.code, refusal.message)
            )
        except (SMTPException, OSError, ValueError) as error:
            _let_go(client, made)
            named = _named(error, sent=False)
            # Before the login, what the library itself objects to is a server without STARTTLS;
            # then, one without AUTH.
            raise (
                MailError("tls", sent=False)
                if named.reason == "unsendable" and stage == "connect"
                else named
            ) from None
        except BaseException:
            _let_go(client, made)
            raise
        return client

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
            if self._trust is not None:
                self._context.load_verify_locations(self._trust)
        return self._context


def _let_go(client: SMTP, made: socket.socket) -> None:
    """Close the connection; the socket itself, too, where the client had not taken it over yet."""
    has_it = client.transport is not None
    client.close()
    if not has_it:
        made.close()


async def _conversation(client: SMTP, envelope: Envelope, *, is_kept: bool) -> MailAnswer:
    from aiosmtplib import SMTPException, SMTPRecipientRefused, SMTPResponseException

    try:
        await client.mail(envelope.sender)
    except SMTPResponseException as refusal:
        # A server that is about to close an idle connection says so at the next command.
        if is_kept and (refusal.code == 421 or refusal.code < 200):
            raise _Stale from None
        return MailAnswer("sender", _reply(refusal))
    except (SMTPException, OSError, ValueError) as error:
        if is_kept:
            raise _Stale from None
        raise _named(error, sent=False) from None
    refused: dict[str, MailReply] = {}
    try:
        await client.rcpt(envelope.to)
        for address in envelope.copies:
            try:
                await client.rcpt(address)
            except SMTPRecipientRefused as refusal:
                refused[address] = _reply(refusal)
    except SMTPResponseException as refusal:
        return MailAnswer("recipient", _reply(refusal))
    except (SMTPException, OSError, ValueError) as error:
        raise _named(error, sent=False) from None
    try:
        reply = await client.data(envelope.message)
    except SMTPResponseException as refusal:
        if refusal.code < 200:
            raise MailError("bad_answer", sent=True) from None
        return MailAnswer("data", MailReply(refusal.code, refusal.message), refused)
    except (SMTPException, OSError, ValueError) as error:
        raise _named(error, sent=True) from None
    return MailAnswer("data", MailReply(reply.code, reply.message), refused)


def _reply(refusal: SMTPResponseException) -> MailReply:
    if refusal.code < 200:
        raise MailError("bad_answer", sent=False)
    return MailReply(refusal.code, refusal.message)


def _named(error: Exception, *, sent: bool) -> MailError:
    """The one place where the library's exceptions get our names.

    Their texts may quote an address, so none is kept.
    """
    from aiosmtplib import SMTPConnectError, SMTPConnectTimeoutError, SMTPServerDisconnected

    causes = (error, error.__cause__)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return MailError("tls", sent=sent)
    if isinstance(error, SMTPConnectTimeoutError):
        return MailError("connect_timeout", sent=sent)
    if isinstance(error, TimeoutError):
        return MailError("timeout", sent=sent)
    if isinstance(error, SMTPConnectError | SMTPServerDisconnected | OSError):
        return MailError("reset", sent=sent)
    return MailError("unsendable", sent=sent)


def _account(server: MailServer) -> _Account:
    # The digest in place of the password: a changed one must not go on with what the old one
    # opened.
    digest = hashlib.sha256(server.password.encode()).digest()
    return server.host, server.port, server.tls, server.user, digest


def _literal(made: socket.socket) -> str:
    address = str(made.getsockname()[0]).partition("%")[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"
