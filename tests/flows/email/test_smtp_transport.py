"""The real way out by SMTP, against a real server (aiosmtpd) and one that misbehaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gesta.outbound.http import PrivateAddressGuard
from gesta.outbound.smtp import Envelope, MailError, MailServer
from gesta.outbound.smtp.smtp_transport import KEEP_SECONDS, SmtpTransport
from gesta.runtime.clock import SystemRuntime
from tests.flows.email.mail_server import Mailbox, certificate, real_server, scripted_server

LETTER = b"Message-ID: <1@example.com>\r\nSubject: x\r\n\r\nhello\r\n.dot\r\n"
ENVELOPE = Envelope(
    "shop@example.com", "ana@example.com", ("cc@example.org",), LETTER, "1@example.com"
)
LOOPBACK = PrivateAddressGuard(["127.0.0.0/8"])


class MovedClock(SystemRuntime):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
async def transport() -> AsyncIterator[SmtpTransport]:
    made = SmtpTransport(LOOPBACK, MovedClock())
    yield made
    await made.close()


def server_of(mailbox: Mailbox, tls: str = "none", **fields: object) -> MailServer:
    return MailServer("127.0.0.1", mailbox.port, tls, **fields)  # type: ignore[arg-type]


async def error_of(transport: SmtpTransport, server: MailServer) -> tuple[str, bool]:
    with pytest.raises(MailError) as error:
        await transport.send(server, ENVELOPE)
    return error.value.reason, error.value.sent


async def test_an_email_arrives_byte_for_byte(transport):
    async with real_server(Mailbox()) as mailbox:
        answer = await transport.send(server_of(mailbox), ENVELOPE)
        assert (answer.is_accepted, answer.stage, answer.reply.code, dict(answer.refused)) == (
            True,
            "data",
            250,
            {},
        )
        [letter] = mailbox.letters
        assert (letter.mail_from, letter.rcpt_tos, letter.original_content) == (
            "shop@example.com",
            ["ana@example.com", "cc@example.org"],
            LETTER,
        )


async def test_connections_are_kept_for_a_while_and_used_again(transport):
    async with real_server(Mailbox(), needs_login=True) as mailbox:
        server = server_of(mailbox, user="u", password="right")
        for _ in range(3):
            assert (await transport.send(server, ENVELOPE)).is_accepted
        assert (mailbox.connections, mailbox.logins, len(mailbox.letters)) == (1, 1, 3)
        transport._runtime.ahead = KEEP_SECONDS
        assert (await transport.send(server, ENVELOPE)).is_accepted
        assert mailbox.connections == 2


async def test_another_password_opens_another_connection(transport):
    async with real_server(Mailbox(), needs_login=True) as mailbox:
        assert (
            await transport.send(server_of(mailbox, user="u", password="right"), ENVELOPE)
        ).is_accepted
        answer = await transport.send(server_of(mailbox, user="u", password="wrong"), ENVELOPE)
        assert (answer.stage, answer.reply.code) == ("login", 535)
        assert mailbox.connections == 2


async def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(transport):
    idle_ends = False

    def answer(line: str) -> bytes | None:
        nonlocal idle_ends
        if line.startswith("MAIL") and idle_ends:
            idle_ends = False
            return b"421 4.4.2 idle too long\r\n"
        return {"": b"220 x\r\n", "DATA": b"354 go\r\n"}.get(line, b"250 ok\r\n")

    async with scripted_server(answer) as mailbox:
        assert (await transport.send(server_of(mailbox), ENVELOPE)).is_accepted
        idle_ends = True
        assert (await transport.send(server_of(mailbox), ENVELOPE)).is_accepted
        assert mailbox.connections == 2


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_tls_is_used_and_checked(tmp_path, tls):
    path = certificate(tmp_path)
    trusting = SmtpTransport(LOOPBACK, SystemRuntime(), trust=str(path))
    wary = SmtpTransport(LOOPBACK, SystemRuntime())
    try:
        async with real_server(Mailbox(), tls, path, needs_login=True) as mailbox:
            server = server_of(mailbox, tls, user="u", password="right")
            assert (await trusting.send(server, ENVELOPE)).is_accepted
            assert await error_of(wary, server) == ("tls", False)
            assert len(mailbox.letters) == 1
    finally:
        await trusting.close()
        await wary.close()


async def test_a_server_without_starttls_gets_nothing(transport):
    async with real_server(Mailbox()) as mailbox:
        assert await error_of(transport, server_of(mailbox, "starttls")) == ("tls", False)
        assert mailbox.letters == []


async def test_refusals_come_back_word_for_word(transport):
    async with real_server(Mailbox()) as mailbox:
        mailbox.refused = {"cc@example.org": "550 5.1.1 no such user"}
        answer = await transport.send(server_of(mailbox), ENVELOPE)
        assert answer.is_accepted
        assert [(address, reply.code, reply.text) for address, reply in answer.refused.items()] == [
            ("cc@example.org", 550, "5.1.1 no such user")
        ]  # S2-20
        mailbox.refused = {"ana@example.com": "450 4.2.1 later"}
        answer = await transport.send(server_of(mailbox), ENVELOPE)
        assert (answer.stage, answer.reply.code, answer.reply.text) == (
            "recipient",
            450,
            "4.2.1 later",
        )
        mailbox.refused = {}
        mailbox.says = "554 5.7.1 spam"
        answer = await transport.send(server_of(mailbox), ENVELOPE)
        assert (answer.stage, answer.reply.code, answer.is_accepted) == ("data", 554, False)
        # `to` was refused: no one else got a copy either.
        assert len(mailbox.letters) == 1
        mailbox.says = "250 ok"
        assert (await transport.send(server_of(mailbox), ENVELOPE)).is_accepted


@pytest.mark.parametrize(
    ("hangs_up_at", "sent"),
    [("", False), ("EHLO", False), ("MAIL", False), ("RCPT", False), ("DATA", True), (".", True)],
)
async def test_a_lost_connection_is_unknown_only_after_data(transport, hangs_up_at, sent):
    def answer(line: str) -> bytes | None:
        if line.partition(" ")[0] == hangs_up_at:
            return None
        return {"": b"220 x\r\n", "DATA": b"354 go\r\n"}.get(line, b"250 ok\r\n")

    async with scripted_server(answer) as mailbox:
        assert await error_of(transport, server_of(mailbox)) == ("reset", sent)  # D-11


@pytest.mark.parametrize(("silent_at", "sent"), [("", False), ("MAIL", False), (".", True)])
async def test_a_timeout_is_unknown_only_after_data(transport, silent_at, sent):
    def answer(line: str) -> bytes | None:
        if line.partition(" ")[0] == silent_at:
            return b""
        return {"": b"220 x\r\n", "DATA": b"354 go\r\n"}.get(line, b"250 ok\r\n")

    async with scripted_server(answer) as mailbox:
        reason, was_sent = await error_of(transport, server_of(mailbox, timeout_seconds=0.05))
        assert (reason in ("timeout", "connect_timeout"), was_sent) == (True, sent)


@pytest.mark.parametrize(("at", "sent"), [("MAIL", False), (".", True)])
async def test_an_answer_that_is_not_smtp_raises(transport, at, sent):
    def answer(line: str) -> bytes | None:
        if line.partition(" ")[0] == at:
            return b"HTTP/1.1 400 Bad Request\r\n"
        return {"": b"220 x\r\n", "DATA": b"354 go\r\n"}.get(line, b"250 ok\r\n")

    async with scripted_server(answer) as mailbox:
        assert await error_of(transport, server_of(mailbox)) == ("bad_answer", sent)


async def test_no_password_is_sent_to_a_server_without_login(transport):
    async with scripted_server(lambda line: b"220 x\r\n" if not line else b"250 ok\r\n") as mailbox:
        assert await error_of(transport, server_of(mailbox, user="u", password="p")) == (
            "unsendable",
            False,
        )


async def test_a_refused_connection_and_an_unknown_host_raise(transport):
    with socket.create_server(("127.0.0.1", 0)) as leased:
        port = leased.getsockname()[1]
    server = MailServer("127.0.0.1", port, "none")
    assert await error_of(transport, server) == ("refused", False)
    assert await error_of(transport, replace(server, host="nowhere.invalid")) == ("dns", False)
    assert await error_of(transport, replace(server, host="a" * 70 + ".example")) == ("dns", False)


async def test_an_address_that_swallows_everything_is_given_up_in_time(transport, monkeypatch):
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "sock_connect", never, raising=False)
    assert await error_of(transport, MailServer("127.0.0.1", 25, "none", timeout_seconds=0.01)) == (
        "connect_timeout",
        False,
    )


async def test_the_guard_checks_every_server():
    strict = SmtpTransport(PrivateAddressGuard(), SystemRuntime())
    try:
        async with real_server(Mailbox()) as mailbox:
            assert await error_of(strict, server_of(mailbox, "starttls")) == (
                "private_address",
                False,
            )
            assert await error_of(strict, replace(server_of(mailbox), host="localhost")) == (
                "private_address",
                False,
            )
            assert mailbox.connections == 0
    finally:
        await strict.close()


async def test_without_tls_only_allowed_networks_are_reached():
    class Public:
        async def resolve(self, *_: object, **__: object) -> list[dict[str, object]]:
            return [{"host": "93.184.216.34"}]

        async def close(self) -> None: ...

    public: Any = Public()
    transport = SmtpTransport(LOOPBACK, SystemRuntime(), resolver=public)
    try:
        assert await error_of(transport, MailServer("mail.example.com", 25, "none")) == (
            "plain_smtp",
            False,
        )
    finally:
        await transport.close()
