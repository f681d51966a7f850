"""Runs uvicorn in the engine's event loop, with limits that uvicorn lacks."""

import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import ref

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gesta.errors import BadInput
from gesta.http_api.endpoint import send_answer
from gesta.http_api.problem import MEDIA_TYPE, Problem
from gesta.http_api.reading import EXCHANGE
from gesta.runtime.clock import Runtime, Signal, SystemRuntime, Timer, sleep, spawn, turn
from gesta.runtime.telemetry import structure

#: From the first byte of a request to the end of its headers, and from the connection to the first
#: request.
HEAD_SECONDS = 10.0
HEAD_BYTES_MAX = 64 * 1024
#: How long a caller may leave an answer unread.
TAKE_SECONDS = 30.0
#: Keep-alive time between two requests.
REST_SECONDS = 30
#: How long running calls may continue when the server stops; streams do not end by themselves.
STOP_SECONDS = 3
CONNECTIONS_MAX = 2_000
#: Retry-After of a refused connection.
FULL_SECONDS = 5
_TICK_SECONDS = 0.01
_DATE_SECONDS = 1.0


class _Exchange:
    """The fast path of a request and its answer, with the same steps as the cycle's `receive` and
    `send`.

    See reading.Exchange.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        # A weak reference: cycle and scope refer to each other, and a strong one would delay their
        # release.
        self._cycle = ref(cycle)

    def body(self) -> bytes | None:
        cycle = self._cycle()
        if (
            cycle is None
            or cycle.more_body
            or cycle.disconnected
            or cycle.response_complete
            or cycle.waiting_for_100_continue
        ):
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        cycle = self._cycle()
        if (
            cycle is None
            or cycle.flow.write_paused
            or cycle.disconnected
            or cycle.response_started
            or not cycle.keep_alive
        ):
            # Slow readers, closed connections and `Connection: close` use ASGI.
            return False
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts += (b"\r\n", body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"".join(parts))
        cycle.message_event.set()
        cycle.on_response()
        return True


class _Protocol(HttpToolsProtocol):
    """Closes connections that send their headers too slowly or too long, or do not read their
    answers.
    """

    _clock = SystemRuntime()
    _patience: Timer | None = None
    _head_bytes = 0
    _is_in_head = True
    #: Since when the peer has read nothing of what is buffered.
    _unsent_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_patience()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX + len(data) and not self.transport.is_closing():
                self.transport.close()
                return
        super().data_received(data)
        if self._patience is None and (self._is_in_head or self._is_at_rest()):
            # An incomplete head, a blank line or the rest of an answered body: uvicorn has no
            # timeout for these.
            self._be_patient()

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        self._end_patience()
        app = self.app
        if len(self.connections) >= CONNECTIONS_MAX or len(self.tasks) >= CONNECTIONS_MAX:
            # uvicorn's own limit answers in plain text without Retry-After.
            self.app = _full
            self.logger.warning(
                "more than %d connections or calls at once; one was refused", CONNECTIONS_MAX - 1
            )
        try:
            # The cycle takes the application here, so only this call is refused.
            super().on_headers_complete()
        finally:
            self.app = app
        # The application gets this scope when its task starts.
        self.scope["extensions"] = {EXCHANGE: _Exchange(self.cycle)}  # type: ignore[dict-item]

    def send_400_response(self, msg: str) -> None:
        """A problem instead of uvicorn's plain text."""
        detail = "not a valid HTTP request: the head is malformed or has two lengths"
        body = msgspec.json.encode(Problem(400, "malformed_http", detail).representation)
        head = (
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection:"
            " close\r\n\r\n"
        )
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)
        self.transport.close()

    def resume_writing(self) -> None:
        self._unsent_since = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Abort the connection of a caller who does not read: a buffered answer would keep it open
        forever.
        """
        if not self.transport.get_write_buffer_size():
            self._unsent_since = None
        elif self._unsent_since is None:
            self._unsent_since = now
        elif now - self._unsent_since > TAKE_SECONDS:
            self.transport.abort()

    def _is_at_rest(self) -> bool:
        """Whether no call is active and uvicorn's keep-alive timer is stopped."""
        return (
            self.cycle is None or self.cycle.response_complete
        ) and self.timeout_keep_alive_task is None

    def _be_patient(self) -> None:
        self._patience = self._clock.call_later(HEAD_SECONDS, self.transport.close)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


async def _full(_scope: Any, _receive: Any, send: Any) -> None:
    detail = "too many connections are open; nothing was done, try again"
    headers = {"Retry-After": str(FULL_SECONDS), "Connection": "close"}
    await send_answer(Problem(503, "too_many_connections", detail, headers=headers).answer(), send)


class _Server(uvicorn.Server):
    """Leaves signals to the process, and stops at once: uvicorn polls ten times a second."""

    def __init__(self, config: uvicorn.Config, clock: Runtime) -> None:
        super().__init__(config)
        self._clock, self._stopped = clock, Signal(clock)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        # Tick 0 updates the date header.
        while not await self.on_tick(0):
            for connection in list(self.server_state.connections):
                if isinstance(connection, _Protocol):
                    connection.look(self._clock.monotonic())
            await self._stopped.wait(_DATE_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        state, end = self.server_state, self._clock.monotonic() + STOP_SECONDS
        for connection in list(state.connections):
            connection.shutdown()
        await turn()
        while (state.connections or state.tasks) and self._clock.monotonic() < end:
            await sleep(self._clock, _TICK_SECONDS)
        for task in state.tasks:
            task.cancel()


#: The advice when the port is in use.
REMEDY = "choose another with --port or GESTA_API_PORT; `gesta serve --no-api` runs without the API"


def bind(host: str, port: int, what: str = "port", remedy: str = REMEDY) -> socket.socket:
    """A listening socket; raises BadInput."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because otherwise asyncio leaves Nagle's algorithm on, and an answer in
    # two parts waits for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BadInput(f"{what} {port} on {host}: {error.strerror or error}; {remedy}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve while the body of the context runs; then refuse new calls and give running ones a
    moment.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=REST_SECONDS,
    )
    structure("uvicorn", "asyncio")
    clock = SystemRuntime()
    server, ended = _Server(config, clock), Signal(clock)
    task = spawn(server.serve(sockets=[listener]), "gesta-http")
    task.add_done_callback(lambda _: ended.set())
    while not server.started and not task.done():
        await sleep(clock, _TICK_SECONDS)
    try:
        yield
    finally:
        server.stop()
        await ended.wait(STOP_SECONDS + 2.0)
