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
from gesta.runtime.clock import run, spawn


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
    """One connection: the next body goes out when the last answer is in."""

    def __init__(self, bodies: Iterator[bytes], head: bytes) -> None:
        self._bodies, self._head, self._buffer = bodies, head, bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.took_ms: list[float] = []
        self.statuses: list[int] = []
        self.answers: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one in all but its class.
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        body = next(self._bodies, None)
        if body is None:
            self._transport.close()
            self.ended.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body))

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


async def call(task: Task) -> Called:
    head = (
        f"POST {task.path} HTTP/1.1\r\nHost: {task.host}\r\nAuthorization: Bearer"
        f" {task.key}\r\nContent-Type: application/json\r\n"
    ).encode()
    bodies = iter(bodies_of(task))
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    opening = [
        spawn(
            loop.create_connection(lambda: Caller(bodies, head), task.host, task.port),
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
    # A line each: whoever reads lines has a limit for one.
    sys.stdout.writelines(f"{one}\n" for one in called.ids)
    sys.stdout.write(msgspec.json.encode(msgspec.structs.replace(called, ids=[])).decode() + "\n")


if __name__ == "__main__":
    main()
