"""The fake mail server on a port of this machine: enough of SMTP for any client, without TLS."""

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from gesta.outbound.smtp import Envelope, MailReply
from gesta.runtime.clock import Runtime, sleep, spawn, turn
from gesta.sandbox.smtp import FakeMailServer, reply_of, stage_of

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
#: Event loop turns until an accepted connection is known here.
_TURNS_TO_MEET = 3


class StreamServer:
    """Runs `serve` for each connection and closes it afterwards. On exit every connection is reset
    and every `serve` has ended.
    """

    def __init__(
        self,
        serve: Serve,
        listening: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        limit: int = 2**16,
    ) -> None:
        self._serve, self._listening, self._tls, self._limit = serve, listening, tls, limit
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._meet, sock=self._listening, ssl=self._tls, limit=self._limit
        )
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        # Accept no new ones, and let those in progress arrive: a server that closes first forgets
        # them (Python 3.11).
        asyncio.get_running_loop().remove_reader(self._listening)
        for _turn in range(_TURNS_TO_MEET):
            await turn()
        self._server.close()
        serving = list(self._serving.items())
        for task, writer in serving:
            writer.transport.abort()
            task.cancel()
        for task, _writer in serving:
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine, so that it runs as soon as the connection exists.
        task = spawn(self._serve(reader, writer), "stream")
        self._serving[task] = writer
        task.add_done_callback(lambda task: self._serving.pop(task).close())


LETTER_BYTES_MAX = 2 * 1024 * 1024
_LINE_BYTES_MAX = 4_096
_ADDRESS = re.compile(r"(?:FROM|TO):\s*<([^>]*)>", re.IGNORECASE)


class SmtpFace:
    def __init__(self, fake: FakeMailServer, runtime: Runtime, listening: socket.socket) -> None:
        self._fake, self._runtime, self._listening = fake, runtime, listening
        self._server = StreamServer(self._serve, listening, limit=LETTER_BYTES_MAX)

    @property
    def url(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"smtp://{host}:{port}"

    async def start(self) -> None:
        await self._server.__aenter__()

    async def close(self) -> None:
        await self._server.__aexit__(None, None, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client disconnected or does not speak SMTP.
        with suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError
        ):
            await _Conversation(self._fake, self._runtime, reader=reader, writer=writer).run()


class _Conversation:
    def __init__(
        self,
        fake: FakeMailServer,
        runtime: Runtime,
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._fake, self._runtime, self._reader, self._writer = fake, runtime, reader, writer
        self._reset()

    def _reset(self) -> None:
        self._sender = ""
        self._recipients: list[str] = []

    async def run(self) -> None:
        if await self._refuses_at("connect"):
            return
        await self._say(220, "sandbox ESMTP")
        while line := await self._line():
            verb, _, rest = line.partition(" ")
            match verb.upper():
                case "EHLO":
                    self._writer.write(b"250-sandbox\r\n250-ENHANCEDSTATUSCODES\r\n")
                    await self._say(250, "AUTH PLAIN LOGIN")
                case "HELO" | "NOOP":
                    await self._say(250, "sandbox")
                case "RSET":
                    self._reset()
                    await self._say(250, "2.0.0 forgotten")
                case "AUTH":
                    await self._login(rest)
                case "MAIL":
                    self._reset()
                    await self._mail(rest)
                case "RCPT":
                    await self._recipient(rest)
                case "DATA":
                    if not await self._letter():
                        return
                case "QUIT":
                    await self._say(221, "2.0.0 bye")
                    return
                case _:
                    await self._say(502, "5.5.1 not known here")

    async def _login(self, rest: str) -> None:
        kind, _, initial = rest.partition(" ")
        said = [initial] if initial else []
        questions = ("VXNlcm5hbWU6", "UGFzc3dvcmQ6") if kind.upper() == "LOGIN" else ("",)
        for question in questions[len(said) :]:
            await self._say(334, question)
            said.append(await self._line())
        # PLAIN sends both in one, separated by NUL.
        words = [
            word.decode(errors="replace")
            for one in said
            for word in base64.b64decode(one).split(b"\0")
        ]
        if (refusal := self._fake.refuses(*words)) is not None:
            await self._reply(refusal)
        elif not await self._refuses_at("login"):
            await self._say(235, "2.7.0 welcome")

    async def _mail(self, rest: str) -> None:
        if (match := _ADDRESS.match(rest)) is None:
            await self._say(501, "5.5.4 MAIL FROM:<address>")
            return
        self._sender = match[1]
        await self._say(250, "2.1.0 ok")

    async def _recipient(self, rest: str) -> None:
        if (match := _ADDRESS.match(rest)) is None:
            await self._say(501, "5.5.4 RCPT TO:<address>")
        elif (said := self._fake.refuses(match[1])) is not None:
            await self._reply(said)
        elif not await self._refuses_at("recipient"):
            self._recipients.append(match[1])
            await self._say(250, "2.1.5 ok")

    async def _letter(self) -> bool:
        """False when the connection has ended."""
        if not self._recipients:
            await self._say(503, "5.5.1 RCPT first")
            return True
        await self._say(354, "end with a dot")
        raw = await self._reader.readuntil(b"\r\n.\r\n")
        message = raw[:-3].replace(b"\r\n..", b"\r\n.")
        message = message.removeprefix(b".") if message.startswith(b"..") else message
        to, *copies = self._recipients
        reply = self._fake.deliver(
            Envelope(self._sender, to, tuple(copies), message), self._runtime.now_ms()
        )
        if reply.slow_seconds:
            await sleep(self._runtime, reply.slow_seconds)
        if reply.drop:
            self._writer.transport.abort()
            return False
        await self._reply(reply_of(reply))
        self._reset()
        return True

    async def _refuses_at(self, stage: str) -> bool:
        code = self._fake.waiting_code()
        if code is None or stage_of(code) != stage:
            return False
        await self._reply(self._fake.use_up())
        return True

    async def _line(self) -> str:
        line = await self._reader.readuntil(b"\n")
        if len(line) > _LINE_BYTES_MAX:
            raise ValueError("a line that is too long")
        return line.decode(errors="replace").strip()

    async def _reply(self, reply: MailReply) -> None:
        await self._say(reply.code, reply.text)

    async def _say(self, code: int, text: str) -> None:
        self._writer.write(f"{code} {text}\r\n".encode())
        await self._writer.drain()
