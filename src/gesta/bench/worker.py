"""`python -m gesta.bench.worker STORE RECEIVER`: a process that works on the store, which the bench starts, asks and kills.

Each line on its standard input is answered with the CPU seconds it has used so far. Ends when the input does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from gesta.demo.worker import LOOPBACK, READY
from gesta.domain.outcome import Done, Outcome
from gesta.engine import Engine
from gesta.flows.flow import Attempt, Flow, Payload, flow
from gesta.runtime import run
from gesta.settings import Settings

#: Tells the receiver which process a call comes from.
PROCESS = "gesta-process"


class Call(Payload, frozen=True):
    number: int


def call_flow(receiver: str) -> Flow:
    @flow("bench.call", on_unknown="same_key")
    async def call(payload: Call, attempt: Attempt) -> Outcome:
        headers = {"Idempotency-Key": attempt.key, PROCESS: str(os.getpid())}
        answer = await attempt.http.post(receiver, json={"number": payload.number}, headers=headers)
        return Done(id=answer["id"])

    return call


def open_engine(store: str, receiver: str, *, work: bool) -> Engine:
    # Nothing of the environment counts: the store is the bench's own.
    return Engine(settings=Settings(url=store, allow_private=(LOOPBACK,)), flows=[call_flow(receiver)], work=work)


async def work(store: str, receiver: str) -> None:
    async with open_engine(store, receiver, work=True):
        _say(READY)
        reader = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.readline():
            _say(f"{time.process_time()}\n".encode())
        pipe.close()


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    run(work(*sys.argv[1:3]))
