"""Orders that wait to be rendered: fair between tenants in CPU time, at most two children.

Start-time fair queueing. Every tenant has a line and a virtual time, the CPU time it has used. The
tenant with the lowest virtual time is next; a tenant that was idle starts at the present. So a
tenant with heavy templates waits behind itself, and a single order of another tenant is next.

A child returns to the queue after a short time (`BATCH_SECONDS` of `child.py`), but one order may
take up to `CPU_SECONDS`. While that lasts, a second child serves the other tenants. A tenant
never has both children.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import TypeVar

import msgspec

from gesta.errors import RendererDown
from gesta.runtime.clock import Runtime, Timer, spawn, turn
from gesta.tenants.templates.child import BATCH_SECONDS, CPU_SECONDS, Answer, Batch, Order, Task
from gesta.tenants.templates.child_process import Child, ChildEnded
from gesta.tenants.templates.renderer import KEPT
from gesta.tenants.templates.templates import Template, sources, weight

T = TypeVar("T")
K = TypeVar("K")

BATCH_BYTES_MAX = 4 * 1024 * 1024
#: An order that has waited this long fails, well before the time limit of its attempt.
WAIT_SECONDS = 10.0
#: CPU time that a tenant gets before the next tenant's turn in the same batch.
QUANTUM_SECONDS = 0.005
#: The second child starts when the first has been busy with one batch for this long.
BUSY_SECONDS = 0.05
#: Weight of the newest measurement in the expected CPU time of a template.
SMOOTHING = 0.1
#: Idle tenants whose virtual time is remembered.
IDLE_KEPT = 1_000


class Waiting(msgspec.Struct, eq=False):
    """An order and the future of the caller that waits for its answer."""

    tenant: str
    template: Template
    task: Task
    data: bytes
    since: float
    answer: asyncio.Future[Answer]
    #: The CPU time that the tenant was charged in advance.
    expected: float = 0.0

    def settle(self, answer: Answer | RendererDown) -> None:
        if self.answer.done():
            # The caller was cancelled.
            return
        if isinstance(answer, RendererDown):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)

    @property
    def measured_by(self) -> Template | str:
        """The key under which its expected CPU time is remembered; every page is different."""
        return self.tenant if self.task == "dress" else self.template


class FairLines:
    """A line of orders for each tenant, and the CPU time that each tenant has used."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lines: dict[str, deque[Waiting]] = {}
        self._used: dict[str, float] = {}
        #: The virtual time of the tenant that was served last.
        self._present = 0.0
        self._measured: dict[Template | str, float] = {}

    def put(self, order: Waiting) -> None:
        self._line_of(order.tenant).append(order)

    def put_back(self, orders: Iterable[Waiting]) -> None:
        """Orders that were taken and not served; they are first in their lines again."""
        for order in reversed(list(orders)):
            self._line_of(order.tenant).appendleft(order)
            self._used[order.tenant] -= order.expected
            order.expected = 0.0

    def _line_of(self, tenant: str) -> deque[Waiting]:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = deque()
            self._used[tenant] = max(self._used.get(tenant, 0.0), self._present)
        return line

    def tenants(self, besides: Collection[str]) -> list[str]:
        """The tenants with waiting orders, without these."""
        return [tenant for tenant in self._lines if tenant not in besides]

    def take(self, batch_max: int, besides: Collection[str]) -> list[Waiting]:
        """The next orders, none of these tenants. Orders that waited too long fail."""
        batch: list[Waiting] = []
        size, seconds, too_old = 0, 0.0, self._runtime.monotonic() - WAIT_SECONDS
        heap = [(self._used[tenant], tenant) for tenant in self.tenants(besides)]
        heapify(heap)
        while heap and len(batch) < batch_max and size < BATCH_BYTES_MAX:
            if seconds >= BATCH_SECONDS:
                break
            used, tenant = heappop(heap)
            self._present = max(self._present, used)
            line, turn_seconds, before = self._lines[tenant], 0.0, None
            measured: float | None = None
            while line and len(batch) < batch_max and size < BATCH_BYTES_MAX:
                order = line.popleft()
                if order.since < too_old:
                    order.settle(
                        RendererDown(
                            f"no answer within {WAIT_SECONDS:g} s; too many templates are waiting"
                        )
                    )
                    continue
                if order.answer.done():
                    continue
                if before is None or order.template is not before.template:
                    # Once for neighbours of one template: its hash is that of all its parts.
                    size += weight(order.template)
                    measured = self._measured.get(order.measured_by)
                order.expected = QUANTUM_SECONDS if measured is None else measured
                batch.append(order)
                before, size = order, size + len(order.data)
                turn_seconds += order.expected
                if measured is not None and measured >= QUANTUM_SECONDS:
                    # The child would return the rest of the batch.
                    seconds += measured
                if turn_seconds >= QUANTUM_SECONDS or seconds >= BATCH_SECONDS:
                    break
            self._used[tenant] = used + turn_seconds
            if line:
                heappush(heap, (self._used[tenant], tenant))
            else:
                del self._lines[tenant]
        return batch

    def charge(self, orders: Sequence[Waiting], seconds: Sequence[float]) -> None:
        """Orders that were taken have used this CPU time each."""
        before: Waiting | None = None
        measured = 0.0
        for order, used in zip(orders, seconds, strict=False):
            if before is None or order.template is not before.template:
                # Once for neighbours of one template: its hash is that of all its parts.
                if before is not None:
                    remember(self._measured, before.measured_by, measured)
                measured = self._measured.get(order.measured_by, used)
            before = order
            measured += SMOOTHING * (used - measured)
            self._used[order.tenant] = (
                self._used.get(order.tenant, self._present) + used - order.expected
            )
        if before is not None:
            remember(self._measured, before.measured_by, measured)
        if len(self._used) > len(self._lines) + IDLE_KEPT:
            self._used = {tenant: self._used[tenant] for tenant in self._lines}

    def clear(self, error: RendererDown) -> None:
        for line in self._lines.values():
            for order in line:
                order.settle(error)
        self._lines.clear()


class _Server:
    """A child and the batch that it works on."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.task: asyncio.Task[None] | None = None
        self.tenants: frozenset[str] = frozenset()
        self.since = 0.0

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()


class RenderQueue:
    """`lost` gets the orders in whose middle a child ended."""

    def __init__(
        self,
        runtime: Runtime,
        batch_max: int,
        lost: Callable[[list[Waiting], ChildEnded, bool], None],
    ) -> None:
        self._runtime, self._batch_max, self._lost = runtime, batch_max, lost
        self._lines = FairLines(runtime)
        self._first, self._second = _Server(), _Server()
        self._timer: Timer | None = None

    def put(self, order: Waiting) -> None:
        self._lines.put(order)
        self._wake()

    def put_back(self, orders: list[Waiting]) -> None:
        self._lines.put_back(orders)
        self._wake()

    def _wake(self) -> None:
        """Let the first child work; check soon whether the second child is needed."""
        if not self._first.is_running:
            self._first.task = spawn(self._work(self._first, self._second), "gesta-renderer")
        elif self._timer is None and not self._second.is_running:
            self._timer = self._runtime.call_later(BUSY_SECONDS, self._help)

    def _help(self) -> None:
        self._timer = None
        if self._second.is_running or not self._lines.tenants(self._first.tenants):
            return
        left = self._first.since + BUSY_SECONDS - self._runtime.monotonic()
        if self._first.is_running and left > 0:
            self._timer = self._runtime.call_later(left, self._help)
        elif self._first.tenants:
            self._second.task = spawn(self._work(self._second, self._first), "gesta-renderer-2")

    async def close(self) -> None:
        self._lines.clear(RendererDown("this process is stopping"))
        if self._timer is not None:
            self._timer.cancel()
        for server in (self._first, self._second):
            while server.is_running:
                assert server.task is not None
                server.task.cancel()
                await turn()
            if server.child is not None:
                server.child.end()
                server.child = None
        # The sockets are closed at the loop's next turn.
        await turn()

    async def _work(self, server: _Server, other: _Server) -> None:
        while await self._has_child(server) and (
            batch := self._lines.take(self._batch_max, other.tenants)
        ):
            server.tenants = frozenset(order.tenant for order in batch)
            server.since = self._runtime.monotonic()
            try:
                await self._serve(server, batch)
            finally:
                server.tenants = frozenset()
            if self._lines.tenants(()):
                self._wake()

    async def _has_child(self, server: _Server) -> bool:
        """Start the second child before it takes orders: the first may be free earlier."""
        if server is self._second and server.child is None:
            with suppress(RendererDown):
                server.child = await Child.start(self._runtime)
            return server.child is not None
        return True

    async def _serve(self, server: _Server, batch: list[Waiting]) -> None:
        is_fresh, is_over, done = False, False, 0
        try:
            child = server.child = server.child or await Child.start(self._runtime)
            is_fresh = child.is_fresh
            child.ask(_packed(batch, child))
            while not is_over:
                got = await child.answers()
                answered = batch[done : done + len(got.answers)]
                for order, answer in zip(answered, got.answers, strict=False):
                    order.settle(answer)
                self._lines.charge(answered, got.seconds)
                done, is_over = done + len(got.answers), got.is_last
            self._lines.put_back(batch[done:])
        except RendererDown as error:
            for order in batch:
                order.settle(error)
        except ChildEnded as ended:
            server.child = None
            self._lines.charge([batch[done]], [CPU_SECONDS])
            self._lost(batch[done:], ended, is_fresh)
        except BaseException:
            # This process is probably stopping; no caller may be left waiting.
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


def remember(kept: dict[K, T], key: K, what: T) -> None:
    kept[key] = what
    if len(kept) > KEPT:
        del kept[next(iter(kept))]
