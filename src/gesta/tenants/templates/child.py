"""The child process: `python -m gesta.tenants.templates.child`, with a socket as its stdin.

It ends with its parent, however that ends. Through the socket go frames of msgpack, each after its
length.

A template is somebody else's program. What it may take of memory, time and disk is bounded by the
system, because no template engine bounds it by itself: one filter can make a gigabyte out of a
line. A child that oversteps is killed, and its parent starts another.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import repeat
from time import perf_counter
from typing import Literal

import msgspec

from gesta.tenants.templates.email_html import dress
from gesta.tenants.templates.press import Names, Press, RenderError, Sheet

#: Length of a frame, big-endian.
HEAD_BYTES = 4
#: No frame is longer: a child that claims so has lost its mind.
FRAME_BYTES_MAX = 64 * 1024 * 1024

Task = Literal["render", "variables", "dress"]
Answer = Sheet | Names | RenderError


class Order(msgspec.Struct, frozen=True, array_like=True):
    """Do this with that template, once for each of these: most orders follow one for the same
    template.
    """

    number: int
    task: Task
    data: list[bytes]


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Orders, what the child has to know before, and what it may forget afterwards.

    It answers for each piece of data, in order, in one or more frames.
    """

    #: As bytes: half a character in one source must not keep the others from being written.
    learn: dict[int, dict[str, bytes]]
    forget: list[int]
    orders: list[Order]


_encoder = msgspec.msgpack.Encoder()
read_batch = msgspec.msgpack.Decoder(Batch).decode
read_answers = msgspec.msgpack.Decoder(list[Answer]).decode


def frame(content: Batch | list[Answer]) -> bytes:
    body = _encoder.encode(content)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


SOCKET = 0
#: It needs 21 MB for itself.
MEMORY_BYTES = 256 * 1024 * 1024
#: A quarter of a core remains where all of them are taken.
NICENESS = 5
#: CPU time for each piece of data of an order; an ordinary one takes some microseconds. A timer,
#: because RLIMIT_CPU counts whole seconds of the process's life.
CPU_SECONDS = 0.5
#: What is done within this time counts as one: to restart the timer takes half as long as to fill
#: in a template.
SHORT_SECONDS = 0.001
#: Answers are sent on when so much has gathered, so that those of a large batch are never in memory
#: together,
GATHERED_MAX = 256 * 1024
#: or has taken so much CPU time, so that nobody waits for the slow ones behind theirs.
GATHERED_SECONDS = 0.05


def main() -> None:
    # Whoever stops the parent, by Ctrl-C or by signals to the group, lets it finish what it has
    # begun; then this socket closes.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Behind the engine, which would have to stand back on its own core each time it gives an order.
    os.nice(NICENESS)
    press = Press()
    _bound()
    # The first frame says that it is there. Whatever ends this process later is the doing of a
    # template.
    _write(frame([]))
    while (body := _read_frame()) is not None:
        _restart_timer()
        _work(press, read_batch(body))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(press: Press, batch: Batch) -> None:
    for number, sources in batch.learn.items():
        press.learn(number, {part: source.decode() for part, source in sources.items()})
    answers: list[Answer] = []
    gathered, seconds, began = 0, 0.0, perf_counter()
    for act, data in [
        pair
        for order in batch.orders
        for pair in zip(repeat(_act(press, order)), order.data, strict=False)
    ]:
        answer = act(data)
        answers.append(answer)
        if type(answer) is Sheet:
            for text in answer.parts.values():
                gathered += len(text)
        if (now := perf_counter()) - began > SHORT_SECONDS:
            seconds, began = seconds + _restart_timer(), now
        if gathered > GATHERED_MAX or seconds > GATHERED_SECONDS:
            _write(frame(answers))
            answers, gathered, seconds = [], 0, 0.0
    if answers:
        _write(frame(answers))
    # Last, because one that has to make room may have an order in this very batch.
    for number in batch.forget:
        press.forget(number)


def _restart_timer() -> float:
    """How much of the last one was used up."""
    left, _ = signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    return CPU_SECONDS - left


def _act(press: Press, order: Order) -> Callable[[bytes], Answer]:
    match order.task:
        case "render":
            return partial(press.render, order.number)
        case "variables":
            return lambda _: press.variables(order.number)
        case "dress":
            return _dress


def _dress(data: bytes) -> Answer:
    markup, _, source = data.decode().partition("\n")
    return dress("mjml" if markup == "mjml" else "html", source)


def _read_frame() -> bytes | None:
    head = _read(HEAD_BYTES)
    return None if head is None else _read(int.from_bytes(head, "big"))


def _read(count: int) -> bytes | None:
    """So many bytes; None when the parent is gone."""
    parts = []
    while count:
        part = os.read(SOCKET, min(count, 1024 * 1024))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write(content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(SOCKET, rest) :]


if __name__ == "__main__":
    try:
        main()
    except ConnectionError:
        os._exit(0)
    except BaseException:  # noqa: BLE001 -- out of memory, most likely; no one reads a traceback
        os._exit(1)
    sys.exit(0)
