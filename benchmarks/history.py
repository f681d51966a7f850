"""A past for the store: finished requests written before the clock starts, many times faster than
they could be lived.

Each is a copy of one real request of the same store under an id of its own, through the same ports,
so it has the rows that a real one
leaves: two events, a view, no job, and a checkpoint that is past all of them.

    python -m benchmarks.history

reads from its first line of input what to copy, and prints how many it has. It is a process of its
own, so that the bench's memory stays the engine's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.child import run_module
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.engine.request import Request
from gesta.ports.event_store import Append, NewEvent, Recorded
from gesta.ports.read_model import View
from gesta.ports.stores import Stores
from gesta.projector.partitions import PartitionPositions, positions_of
from gesta.runtime.clock import Ids, SystemRuntime, run
from gesta.stores import open_stores

#: Requests per commit.
BATCH = 1_000

#: Called with how many of how many are written.
Progress = Callable[[int, int], None]


class Order(msgspec.Struct, frozen=True):
    """What to copy, and how often."""

    url: str
    flow: str
    tenant: str
    id: str
    count: int


async def write_history(url: str, sample: Request, count: int, progress: Progress) -> None:
    """Copy a finished request `count` times. No engine may be at work on the store."""
    order = Order(url, sample.flow, sample.tenant, sample.id, count)
    given = msgspec.json.encode(order).decode() + "\n"
    await run_module("benchmarks.history", (), given, lambda line: progress(int(line), count))


async def write(order: Order, progress: Progress) -> None:
    runtime = SystemRuntime()
    stores, ids = await open_stores(order.url, runtime), Ids(runtime)
    try:
        events = await stores.events.read([(request_stream(order.flow, order.tenant, order.id), 0)])
        (view,) = (await stores.read_model.get([(order.flow, order.tenant, order.id)])).values()
        for done in range(0, order.count, BATCH):
            progress(done, order.count)
            new_ids = [ids.new() for _ in range(min(BATCH, order.count - done))]
            # In the order of a busy store: all first events, then all second ones.
            for event in events:
                await stores.events.append(
                    [_copied_event(event, order.id, new_id, runtime) for new_id in new_ids]
                )
            await _save(stores, _copied_views(view, order.id, new_ids))
        progress(order.count, order.count)
    finally:
        await stores.close()


def _copied_event(event: Recorded, old_id: str, new_id: str, runtime: SystemRuntime) -> Append:
    old, new = old_id.encode(), new_id.encode()
    copy = NewEvent(
        runtime.random_bytes(16),
        event.type,
        event.data.replace(old, new),
        event.meta.replace(old, new),
    )
    return Append(event.stream.replace(old_id, new_id), event.version - 1, (copy,))


def _copied_views(view: View, old_id: str, new_ids: Sequence[str]) -> list[View]:
    # The id stands in more than one place of a state: its receipt may be the id as well.
    state, decoder = msgspec.json.encode(view.state), msgspec.json.Decoder(State)
    return [
        View(decoder.decode(state.replace(old_id.encode(), new_id.encode())), view.payload)
        for new_id in new_ids
    ]


async def _save(stores: Stores, views: Sequence[View]) -> None:
    """With every checkpoint past their events, so the projector has nothing left to do."""
    positions = PartitionPositions(
        stores.partitions,
        dict(enumerate(await positions_of(stores.checkpoints, stores.partitions))),
    )
    span = positions.next_span(again=False)
    assert span is not None
    assert len(span.numbers) == stores.partitions, "another process uses the store"
    moves = positions.moves(span, await stores.events.end())
    is_saved = await stores.transactions.project(views, [], [], moves)
    assert is_saved, "another process uses the store"


if __name__ == "__main__":
    run(
        write(
            msgspec.json.decode(sys.stdin.readline(), type=Order),
            lambda done, _: print(done, flush=True),
        )
    )
