"""The child process that renders templates: `python -m gesta.tenants.templates.child`.

Its stdin is a socket to the parent; it ends when the parent does. Both sides send frames of
msgpack, each after its length.

A tenant wrote the template, and no template engine limits memory and time by itself:
one filter can make a gigabyte out of a line. So the operating system limits this process. A child
that exceeds a limit is killed, and its parent starts another.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import repeat
from time import process_time
from typing import Literal

import msgspec

from gesta.tenants.templates.email_html import dress
from gesta.tenants.templates.press import Names, Press, RenderError, Sheet

#: Length of a frame, big-endian.
HEAD_BYTES = 4
#: A child that claims a longer frame is broken.
FRAME_BYTES_MAX = 64 * 1024 * 1024

Task = Literal["render", "variables", "dress"]
Answer = Sheet | Names | RenderError


class Order(msgspec.Struct, frozen=True, array_like=True):
    """One task for one template, once for each piece of data."""

    number: int
    task: Task
    data: list[bytes]


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Orders, the templates to learn before them, and the templates to forget after them."""

    #: As bytes: a lone surrogate in one source must not keep the others from being sent.
    learn: dict[int, dict[str, bytes]]
    forget: list[int]
    orders: list[Order]


class Answers(msgspec.Struct, frozen=True, array_like=True):
    """Answers to the next pieces of data of a batch, in order, and the CPU time of each.

    A batch has one or more of these. After the last one the child has stopped, possibly before
    the end of the batch: the parent decides again which tenant is next.
    """

    answers: list[Answer]
    seconds: list[float]
    is_last: bool


_encoder = msgspec.msgpack.Encoder()
read_batch = msgspec.msgpack.Decoder(Batch).decode
read_answers = msgspec.msgpack.Decoder(Answers).decode


def frame(content: Batch | Answers) -> bytes:
    body = _encoder.encode(content)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


SOCKET = 0
#: The process itself needs 21 MB.
MEMORY_BYTES = 256 * 1024 * 1024
#: If every core is busy, the child still gets about a quarter of one.
NICENESS = 5
#: CPU time for each piece of data; an ordinary template takes some microseconds. A timer limits
#: it, because RLIMIT_CPU counts whole seconds over the life of the process.
CPU_SECONDS = 0.5
#: The timer runs on over answers that together took less than this: restarting it costs half as
#: much as rendering an ordinary template.
SHORT_SECONDS = 0.001
#: Characters of answers that are sent together, so that the answers of a large batch are never in
#: memory at the same time.
GATHERED_MAX = 256 * 1024
#: CPU time after which the child stops and returns the rest of the batch.
BATCH_SECONDS = 0.05


def main() -> None:
    # A signal that stops the parent lets it finish its work first; then the socket closes.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The engine comes first: it would lose its core whenever it sends a batch.
    os.nice(NICENESS)
    press = Press()
    _limit()
    # The first frame says that the child has started. If it ends later, a template caused that.
    _write(frame(Answers([], [], is_last=True)))
    while (body := _read_frame()) is not None:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        _work(press, read_batch(body))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(press: Press, batch: Batch) -> None:
    for number, sources in batch.learn.items():
        press.learn(number, {part: source.decode() for part, source in sources.items()})
    answers: list[Answer] = []
    seconds: list[float] = []
    gathered = 0
    began = timed = before = process_time()
    for act, data in (
        pair
        for order in batch.orders
        for pair in zip(repeat(_act(press, order)), order.data, strict=False)
    ):
        answer = act(data)
        now = process_time()
        answers.append(answer)
        seconds.append(now - before)
        before = now
        if type(answer) is Sheet:
            for text in answer.parts.values():
                gathered += len(text)
        if now - timed > SHORT_SECONDS:
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            timed = now
        if now - began > BATCH_SECONDS:
            break
        if gathered > GATHERED_MAX:
            _write(frame(Answers(answers, seconds, is_last=False)))
            answers, seconds, gathered = [], [], 0
    _write(frame(Answers(answers, seconds, is_last=True)))
    # Last, because a template that has to make room may have an order in this batch.
    for number in batch.forget:
        press.forget(number)


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
    """`count` bytes; None when the parent has ended."""
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
    except BaseException:  # noqa: BLE001 -- probably out of memory; nothing reads a traceback
        os._exit(1)
    sys.exit(0)
