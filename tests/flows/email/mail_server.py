"""A real mail server for tests: aiosmtpd on a free port, with TLS and logins, and a raw one that
misbehaves on purpose.
"""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gesta.sandbox.server import loopback_socket
from gesta.sandbox.smtp_server import StreamServer


@dataclass
class Mailbox:
    """What a server took, and what it says: code → text by address, and to the letter."""

    port: int = 0
    letters: list[Envelope] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    says: str = "250 2.0.0 queued"
    password: str = "right"
    connections: int = 0
    logins: int = 0

    async def handle_RCPT(  # noqa: N802 -- the name that aiosmtpd calls
        self, _s: Any, _se: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, _s: Any, _se: Session, envelope: Envelope) -> str:  # noqa: N802
        if self.says.startswith("2"):
            self.letters.append(envelope)
        return self.says

    def authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        self.logins += 1
        assert isinstance(data, LoginPassword)
        return AuthResult(success=data.password.decode() == self.password, handled=False)


@asynccontextmanager
async def real_server(
    mailbox: Mailbox,
    tls: str = "none",
    certificate: Path | None = None,
    *,
    needs_login: bool = False,
) -> AsyncIterator[Mailbox]:
    context = None if certificate is None else _context(certificate)
    loop = asyncio.get_running_loop()
    made: list[SMTP] = []
    is_over = False

    class Server(SMTP):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if is_over:
                # Accepted in the last moment: nothing would close it any more.
                cast(asyncio.Transport, transport).abort()
            else:
                super().connection_made(transport)

    def make() -> SMTP:
        mailbox.connections += 1
        with warnings.catch_warnings():
            # It warns of logins without TLS, which never leave this machine here.
            warnings.simplefilter("ignore")
            made.append(_server())
            return made[-1]

    def _server() -> SMTP:
        return Server(
            mailbox,
            loop=loop,
            hostname="mail.test",
            tls_context=context if tls == "starttls" else None,
            require_starttls=tls == "starttls",
            authenticator=mailbox.authenticate,
            auth_required=needs_login,
            auth_require_tls=False,
            enable_SMTPUTF8=False,
        )

    server = await loop.create_server(make, "127.0.0.1", 0, ssl=context if tls == "tls" else None)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        is_over = True
        server.close()
        for one in made:
            if isinstance(one.transport, asyncio.Transport):
                one.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def scripted_server(answer: Callable[[str], bytes | None]) -> AsyncIterator[Mailbox]:
    """Says what `answer` makes of each line (`.` for the end of a letter, `` for a new connection);
    None: hangs up.
    """
    mailbox = Mailbox()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mailbox.connections += 1
        line, in_letter = "", False
        try:
            while True:
                if not in_letter or line == ".":
                    said = answer(line)
                    if said is None:
                        writer.transport.abort()
                        return
                    writer.write(said)
                    in_letter = line == "DATA" and said.startswith(b"354")
                raw = await reader.readline()
                if not raw:
                    return
                line = raw.decode().rstrip("\r\n")
        except ConnectionError:
            return

    async with StreamServer(serve, loopback_socket()) as server:
        mailbox.port = server.port
        yield mailbox


def certificate(folder: Path) -> Path:
    """A certificate of our own for 127.0.0.1, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def _context(path: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context
