"""`python -m benchmarks.callers`: many connections that each send a body and wait for its answer,
as fast as they are answered.

A program of its own, on sockets without a library: a client that costs more than the server would
measure itself. Its task comes by standard input, so that
no list of processes shows the key.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import cast

import msgspec

from benchmarks.load import percentile, random_keys
from gesta.runtime.clock import SystemRuntime, run, spawn
from gesta.sandbox.slack import message_event, signed


class Task(msgspec.Struct, frozen=True):
    """What to send: `calls` bodies of `each` requests over so many connections."""

    host: str
    port: int
    path: str
    key: str
    calls: int
    connections: int
    each: int = 1
    keyed: bool = False
    #: The request, as JSON; its payload gets a number.
    flow: str = "bench.plain"
    text: str = ""
    #: Calls per second of all connections together; 0: as fast as they are answered.
    per_second: float = 0.0
    #: Instead of requests: events of Slack, signed with this secret. The events of another round
    #: are others.
    slack_secret: str = ""
    slack_round: int = 0


class Called(msgspec.Struct, frozen=True):
    """How it went."""

    seconds: float
    p50_ms: float
    p99_ms: float
    #: Status → how often.
    statuses: dict[int, int]
    ids: list[str]


class _Answered(msgspec.Struct):
    id: str = ""
    items: list[_Answered] = []


class Caller(asyncio.Protocol):
    """One connection: the next request goes out when the last answer is in, and when it is due."""

    def __init__(self, requests: Iterator[tuple[float, bytes]]) -> None:
        """`requests`: when each is due, in seconds from now, and its bytes."""
        self._requests, self._buffer = requests, bytearray()
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.took_ms: list[float] = []
        self.statuses: list[int] = []
        self.answers: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one in all but its class.
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        found = next(self._requests, None)
        if found is None:
            self._transport.close()
            self.ended.set_result(None)
            return
        due, request = self._start + found[0], found[1]
        if due > self._loop.time():
            self._loop.call_at(due, self._send, request, due)
        else:
            self._send(request, due if found[0] else None)

    def _send(self, request: bytes, due: float | None) -> None:
        # Measured from when it was due: a late server must not hide behind its own lateness.
        late = 0.0 if due is None else max(0.0, self._loop.time() - due)
        self._began = time.perf_counter() - late
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.index(b"content-length:") + 15
        length = int(head[at : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None])
        if len(self._buffer) < end + 4 + length:
            return
        self.took_ms.append((time.perf_counter() - self._began) * 1000)
        self.statuses.append(int(head[9:12]))
        self.answers.append(bytes(self._buffer[end + 4 :]))
        self._buffer.clear()
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed the connection"))


def bodies_of(task: Task) -> list[bytes]:
    """Made before the clock runs."""
    keys = random_keys()

    def one(number: int) -> dict[str, object]:
        asked: dict[str, object] = {
            "flow": task.flow,
            "payload": {"number": number, "text": task.text},
        }
        return asked | {"key": next(keys)} if task.keyed else asked

    numbers = iter(range(task.calls * task.each))
    if task.each == 1:
        return [msgspec.json.encode(one(number)) for number in numbers]
    return [
        msgspec.json.encode({"requests": [one(n) for n in islice(numbers, task.each)]})
        for _ in range(task.calls)
    ]


def requests_of(task: Task) -> list[bytes]:
    """Whole HTTP requests, made before the clock runs."""
    head = (
        f"POST {task.path} HTTP/1.1\r\nHost: {task.host}\r\nContent-Type: application/json\r\n"
    ).encode()
    if not task.slack_secret:
        head += f"Authorization: Bearer {task.key}\r\n".encode()
        return [_request(head, body) for body in bodies_of(task)]
    now = SystemRuntime().now_ms() // 1000
    requests = []
    for number in range(task.calls):
        name = f"{task.slack_round}R{number}"
        event = message_event(
            f"Backlog登録希望 {number}",
            event_id=f"Ev{name}",
            ts=f"170000000{task.slack_round}.{number:06d}",
        )
        posting = signed(event, task.slack_secret, now)
        own = "".join(
            f"{key}: {value}\r\n" for key, value in posting.headers.items() if "X-" in key
        )
        requests.append(_request(head + own.encode(), posting.body))
    return requests


def _request(head: bytes, body: bytes) -> bytes:
    return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


async def call(task: Task) -> Called:
    gap = 1 / task.per_second if task.per_second else 0.0
    requests = iter([(number * gap, one) for number, one in enumerate(requests_of(task))])
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    opening = [
        spawn(
            loop.create_connection(lambda: Caller(requests), task.host, task.port),
            "bench-caller",
        )
        for _ in range(task.connections)
    ]
    callers = [(await one)[1] for one in opening]
    for caller in callers:
        await caller.ended
    seconds = time.perf_counter() - start
    took = sorted(ms for caller in callers for ms in caller.took_ms)
    statuses: dict[int, int] = {}
    ids: list[str] = []
    for caller in callers:
        for status in caller.statuses:
            statuses[status] = statuses.get(status, 0) + 1
        for answer in caller.answers:
            answered = msgspec.json.decode(answer, type=_Answered)
            ids += [one.id for one in answered.items] or [answered.id]
    return Called(seconds, percentile(took, 50), percentile(took, 99), statuses, ids)


def main() -> None:
    called = run(call(msgspec.json.decode(sys.stdin.buffer.read(), type=Task)))
    # A line each: the reader has a limit for a line.
    sys.stdout.writelines(f"{one}\n" for one in called.ids)
    sys.stdout.write(msgspec.json.encode(msgspec.structs.replace(called, ids=[])).decode() + "\n")


if __name__ == "__main__":
    main()
