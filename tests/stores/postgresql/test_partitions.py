"""The partitions of a schema: all are there from the start, and never held by memory alone."""

from __future__ import annotations

from msgspec.structs import replace

from gesta.ports.checkpoints import Move
from gesta.stores.postgresql import PARTITIONS
from gesta.testing.contracts.samples import fresh_append, fresh_view, key_of
from tests.stores.postgresql.places import fresh_url, opened


async def test_reading_the_checkpoints_empties_the_cache():
    url = await fresh_url()
    async with opened(url) as one, opened(url) as other:
        view = fresh_view()
        newer = replace(view, state=replace(view.state, version=2, status="unknown"))
        assert await one.transactions.project([view], [], [], [Move("projector/3", 0, 1, 0)])
        assert await other.transactions.project([newer], [], [], [Move("projector/3", 1, 2, 0)])
        # Its own, from memory, until it looks at whose the partition is.
        assert await one.read_model.get([key_of(view)]) == {key_of(view): view}
        await one.checkpoints.checkpoints()
        assert await one.read_model.get([key_of(view)]) == {key_of(view): newer}


async def test_a_request_is_kept_until_every_partition_has_passed_it():
    url = await fresh_url()
    async with opened(url) as stores:
        view = fresh_view(status="completed", version=1)
        await stores.events.append([fresh_append("stream")])
        names = [f"projector/{number}" for number in range(PARTITIONS)]
        assert await stores.transactions.project(
            [view], [], [], [Move(name, 0, 1, 0) for name in names[1:]]
        )
        assert await stores.transactions.remove([("stream", view.state)]) == 0
        assert await stores.transactions.project([], [], [], [Move(names[0], 0, 1, 0)])
        # `dispatched/0` and its like stand at 0 and hold nothing back.
        assert await stores.transactions.remove([("stream", view.state)]) == 1
