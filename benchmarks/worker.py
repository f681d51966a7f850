"""`python -m benchmarks.worker`: a process that works on the store, which the bench starts, asks
and kills.

The first line on its standard input says where: Orders as JSON, because a list of processes would
show a password. Each further line
is answered with the CPU seconds it has used so far. Ends when the input does.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from gesta.demo.worker import LOOPBACK, READY, standard_input
from gesta.domain.outcome import Done, Outcome
from gesta.engine.engine import Engine
from gesta.flows.attempt import Attempt
from gesta.flows.flow import Flow, Payload, flow
from gesta.runtime.clock import run
from gesta.runtime.settings import Settings

#: Tells the receiver which process a call comes from.
PROCESS = "gesta-process"


class Call(Payload, frozen=True):
    number: int


def call_flow(receiver: str) -> Flow:
    @flow("bench.call", on_unknown="resend")
    async def call(payload: Call, attempt: Attempt) -> Outcome:
        headers = {"Idempotency-Key": attempt.key, PROCESS: str(os.getpid())}
        answer = await attempt.http.post(receiver, json={"number": payload.number}, headers=headers)
        return Done(id=answer["id"])

    return call


class Orders(msgspec.Struct, frozen=True):
    """Where to work, and whom to call."""

    url: str
    master_key: str | None
    receiver: str


def open_engine(orders: Orders, *, work: bool) -> Engine:
    # Nothing of the environment counts: the store is the bench's own.
    settings = Settings(url=orders.url, master_key=orders.master_key, allow_private=(LOOPBACK,))
    return Engine(settings=settings, flows=[call_flow(orders.receiver)], work=work)


async def work() -> None:
    async with standard_input() as lines:
        orders = msgspec.json.decode(await lines.readline(), type=Orders)
        async with open_engine(orders, work=True):
            _say(READY)
            while await lines.readline():
                _say(f"{time.process_time()}\n".encode())


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    run(work())
