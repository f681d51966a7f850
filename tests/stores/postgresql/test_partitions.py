"""The partitions of a schema: made from the one place of an older version, which can project there
no more, and never held by memory alone.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gesta.errors import StoreError, TooNew
from gesta.ports.fences import Fence
from gesta.ports.read_model import Move
from gesta.projector.partitions import Stand, place_of, stands_of
from gesta.stores.migrations import migrations_of
from gesta.stores.postgresql import PARTITIONS
from gesta.stores.postgresql.schema import bring_up_to_date
from gesta.testing.contracts.samples import fresh_append, fresh_view, key_of
from tests.stores.postgresql.places import connected, fresh_url, opened

#: What the last version knew that had one checkpoint for all.
BEFORE = migrations_of("gesta.stores.postgresql")[:13]
#: How that version moves its checkpoint.
MOVE = "select {schema}.move_checkpoint('projector', $1, $2, $3)"


@pytest.mark.parametrize("left", [False, True], ids=["in use", "left for another store"])
async def test_an_older_schema_goes_on_where_it_stood_in_every_partition(left):
    url = await fresh_url()
    async with connected(url) as (connection, database):
        await bring_up_to_date(database, BEFORE)
        for name, position in (
            ("projector", 700),
            ("dispatched", 900),
            ("subscription/ledger", 300),
        ):
            await connection.fetch(database.sql("start_checkpoint"), name, position)
        if left:
            await connection.fetch(database.sql("note_fence"), "left", "", "another")
            await connection.execute(database.sql("fence_left"))
        async with opened(url) as stores:
            assert await stands_of(stores.read_model, PARTITIONS) == [Stand(700, 900)] * PARTITIONS
            assert await place_of(stores.read_model, PARTITIONS) == 700
            assert await stores.read_model.checkpoint("subscription/ledger") == 300
            assert await stores.fences.standing() == ([Fence("left", "another")] if left else [])
        with pytest.raises(TooNew):
            await bring_up_to_date(database, BEFORE)
        await database.close()


async def test_an_older_program_that_still_runs_projects_nothing_more():
    url = await fresh_url()
    async with connected(url) as (connection, database):
        await bring_up_to_date(database, BEFORE)
        move = database.sql.filled(MOVE)
        assert [row[0] for row in await connection.fetch(move, 0, 7, 0)] == [True]
        async with opened(url) as stores:
            # At the place that it remembers, and at the one that it then reads.
            assert [row[0] for row in await connection.fetch(move, 7, 9, 0)] == [False]
            with pytest.raises(StoreError, match="a_newer_gesta_projects_in_partitions"):
                await database.ask_text(move, 0, 9, 0)
            assert await place_of(stores.read_model, PARTITIONS) == 7
        await database.close()


async def test_who_reads_the_places_anew_has_forgotten_the_views():
    url = await fresh_url()
    async with opened(url) as one, opened(url) as other:
        view = fresh_view()
        newer = replace(view, state=replace(view.state, version=2, status="unknown"))
        assert await one.transactions.project([view], [], [], [Move("projector/3", 0, 1, 0)])
        assert await other.transactions.project([newer], [], [], [Move("projector/3", 1, 2, 0)])
        # Its own, from memory, until it looks at whose the partition is.
        assert await one.read_model.get([key_of(view)]) == {key_of(view): view}
        await one.read_model.checkpoints()
        assert await one.read_model.get([key_of(view)]) == {key_of(view): newer}


async def test_what_some_partition_has_not_passed_is_not_removed():
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
