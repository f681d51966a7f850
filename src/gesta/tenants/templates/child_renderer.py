"""Fills templates in by a child process.

Whatever waits while it is at work goes to it in one batch.

When a batch kills the child, its members are asked again one by one, each of a fresh child: only
the one that kills that, too, is to blame.
A template that has done so is always asked alone, so that those of other tenants need not be asked
twice again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from gesta.errors import RendererDown
from gesta.runtime.clock import Runtime, spawn, turn
from gesta.tenants.templates.child import (
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    Answer,
    Batch,
    Order,
    Task,
    frame,
    read_answers,
)
from gesta.tenants.templates.email_html import Markup
from gesta.tenants.templates.press import Names, RenderError, Sheet
from gesta.tenants.templates.renderer import KEPT, Shelf, refuse_missing_engine
from gesta.tenants.templates.templates import Template, sources, weight

#: A child that has not answered after this is killed. Its CPU time is bounded by itself; this is
#: for a machine that does not let it run.
STALL_SECONDS = 10.0


class ChildEnded(Exception):
    """The child is gone in the middle of a batch.

    `by_itself`: not because somebody killed it, so something it was asked made it end.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the renderer's process ended with {status}")
        self.by_itself = status not in (0, -signal.SIGKILL)
        self.told = "takes too much time" if status == -signal.SIGPROF else "takes too much memory"


class Child:
    """A process that renders, and what it knows."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        runtime: Runtime,
    ) -> None:
        self._process, self._reader, self._writer, self._runtime = process, reader, writer, runtime
        self.shelf = Shelf()
        #: It has not been asked anything yet.
        self.is_fresh = True

    @classmethod
    async def start(cls, runtime: Runtime) -> Child:
        """Raises RendererDown when no process can be had, or it does not come to life."""
        refuse_missing_engine()
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                process = _process(ours, theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except OSError as error:
            raise RendererDown(
                f"its process cannot be started: {error.strerror or error}"
            ) from None
        child = cls(process, reader=reader, writer=writer, runtime=runtime)
        try:
            await child.answers()
        except ChildEnded:
            raise RendererDown(
                "its process ended while it started; is there memory left?"
            ) from None
        except BaseException:
            child.end()
            raise
        return child

    def ask(self, batch: Batch) -> None:
        self.is_fresh = False
        self._writer.write(frame(batch))

    async def answers(self) -> list[Answer]:
        """The next answers to the batch, in its order. Raises ChildEnded when none will come."""
        timer = self._runtime.call_later(STALL_SECONDS, self._process.kill)
        try:
            length = int.from_bytes(await self._reader.readexactly(HEAD_BYTES), "big")
            if length <= FRAME_BYTES_MAX:
                return read_answers(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError):
            pass
        finally:
            timer.cancel()
        raise ChildEnded(self.end())

    def end(self) -> int:
        """Kill it unless it is gone already; what it ended with."""
        self._writer.transport.abort()
        self._process.kill()
        return self._process.wait()


def _process(ours: socket.socket, theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The modules of this process and nothing else of its environment: there may be secrets in it.
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gesta.tenants.templates.child"],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": path},
        )
    except OSError:
        ours.close()
        raise


T = TypeVar("T")

BATCH_MAX = 512
BATCH_BYTES_MAX = 4 * 1024 * 1024
#: An order that has waited so long is given back, well before the attempt that made it would be cut
#: off.
WAIT_SECONDS = 10.0


class Waiting(msgspec.Struct, eq=False):
    """An order and whoever waits for its answer."""

    template: Template
    task: Task
    data: bytes
    since: float
    answer: asyncio.Future[Answer]

    def settle(self, answer: Answer | RendererDown) -> None:
        if self.answer.done():
            # Whoever waited has been cut off.
            return
        if isinstance(answer, RendererDown):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class RenderQueue:
    """One child and the orders that wait for it.

    `lost` is told of orders in whose middle the child ended.
    """

    def __init__(
        self,
        runtime: Runtime,
        batch_max: int,
        lost: Callable[[list[Waiting], ChildEnded, bool], None],
    ) -> None:
        self._runtime, self._batch_max, self._lost = runtime, batch_max, lost
        self._line: deque[Waiting] = deque()
        self._child: Child | None = None
        self._worker: asyncio.Task[None] | None = None

    def put(self, order: Waiting) -> None:
        self._line.append(order)
        if self._worker is None or self._worker.done():
            self._begin()

    def put_first(self, orders: list[Waiting]) -> None:
        self._line.extendleft(reversed(orders))
        if self._worker is None or self._worker.done():
            self._begin()

    def _begin(self) -> None:
        self._worker = spawn(self._work(), "gesta-renderer")

    async def close(self) -> None:
        for order in self._line:
            order.settle(RendererDown("this process is stopping"))
        self._line.clear()
        while self._worker is not None and not self._worker.done():
            self._worker.cancel()
            await turn()
        if self._child is not None:
            self._child.end()
            self._child = None
            # The socket is closed at the loop's next turn.
            await turn()

    async def _work(self) -> None:
        while self._line:
            if batch := self._next_batch():
                await self._serve(batch)

    def _next_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        weighed: Template | None = None
        size, too_old, line = 0, self._runtime.monotonic() - WAIT_SECONDS, self._line
        while line and len(batch) < self._batch_max and size < BATCH_BYTES_MAX:
            order = line.popleft()
            if order.since < too_old:
                order.settle(
                    RendererDown(f"no answer within {WAIT_SECONDS:g} s; too much is waiting")
                )
            elif not order.answer.done():
                batch.append(order)
                size += len(order.data)
                if order.template is not weighed:
                    weighed = order.template
                    size += weight(weighed)
        return batch

    async def _serve(self, batch: list[Waiting]) -> None:
        is_fresh = False
        done = 0
        try:
            child = self._child = self._child or await Child.start(self._runtime)
            is_fresh = child.is_fresh
            child.ask(_packed(batch, child))
            while done < len(batch):
                answers = await child.answers()
                for order, answer in zip(batch[done:], answers, strict=False):
                    order.settle(answer)
                done += len(answers)
        except RendererDown as error:
            for order in batch:
                order.settle(error)
        except ChildEnded as ended:
            self._child = None
            self._lost(batch[done:], ended, is_fresh)
        except BaseException:
            # Most likely this process is stopping. Nobody may be left waiting, whatever it is.
            for order in batch:
                order.settle(RendererDown("this process is stopping"))
            raise


def _packed(batch: list[Waiting], child: Child) -> Batch:
    learn: dict[int, dict[str, bytes]] = {}
    forget: list[int] = []
    orders: list[Order] = []
    data: list[bytes] = []
    before: Waiting | None = None
    for order in batch:
        if before is None or order.template is not before.template or order.task != before.task:
            number, is_new, gone = child.shelf.place(order.template)
            if is_new:
                learn[number] = {
                    part: source.encode(errors="replace")
                    for part, source in sources(order.template).items()
                }
            forget += gone
            data = []
            orders.append(Order(number, order.task, data))
        data.append(order.data)
        before = order
    return Batch(learn, forget, orders)


class ChildRenderer:
    """The renderer of a real process. The child starts with the first order."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._together = RenderQueue(runtime, BATCH_MAX, self._judge)
        self._alone = RenderQueue(runtime, 1, self._judge)
        #: Pages take many times as long as templates: one at a time, and not in front of those.
        self._dressing = RenderQueue(runtime, 1, self._judge)
        #: Templates that have killed a child, the last KEPT of them.
        self._convicted: dict[Template, None] = {}
        self._variables: dict[Template, Names] = {}

    def render(self, template: Template, data: bytes) -> Awaitable[Sheet | RenderError]:
        # The child answers nothing else to this order; awaited as it is, because it is done for
        # every message.
        backend = self._alone if self._convicted and template in self._convicted else self._together
        return cast(
            "asyncio.Future[Sheet | RenderError]", self._put(backend, template, "render", data)
        )

    async def variables(self, template: Template) -> Names | RenderError:
        if (known := self._variables.get(template)) is not None:
            return known
        answer = await self._put(
            self._alone if template in self._convicted else self._together,
            template,
            "variables",
            b"",
        )
        assert not isinstance(answer, Sheet)
        if isinstance(answer, Names):
            _remember(self._variables, template, answer)
        return answer

    async def dress(self, markup: Markup, source: str) -> Sheet | RenderError:
        # In place of a template, what tells this page from others: one that kills the child is to
        # blame for itself only.
        page = Template(text=hashlib.sha256(source.encode(errors="replace")).hexdigest())
        data = f"{markup}\n{source}".encode(errors="replace")
        answer = await self._put(
            self._alone if page in self._convicted else self._dressing, page, "dress", data
        )
        assert not isinstance(answer, Names)
        return answer

    async def close(self) -> None:
        await self._together.close()
        await self._dressing.close()
        await self._alone.close()

    def _put(
        self, backend: RenderQueue, template: Template, task: Task, data: bytes
    ) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        backend.put(Waiting(template, task, data, self._runtime.monotonic(), answer))
        return answer

    def _judge(
        self,
        orders: list[Waiting],
        ended: ChildEnded,
        is_fresh: bool,  # noqa: FBT001 -- a callback
    ) -> None:
        if len(orders) > 1 or not is_fresh:
            # One of them, or something before them: each by itself will show.
            self._alone.put_first(orders)
            return
        (order,) = orders
        if ended.by_itself:
            _remember(self._convicted, order.template, None)
            order.settle(RenderError("template", ended.told))
        else:
            order.settle(RendererDown("its process was killed"))


def _remember(kept: dict[Template, T], template: Template, what: T) -> None:
    kept[template] = what
    if len(kept) > KEPT:
        del kept[next(iter(kept))]
