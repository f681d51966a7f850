"""The sweep's walk through the open requests costs what it shows: read along an index that stands,
whatever the planner knows of the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gesta.ports.read_model import View
from gesta.testing.contracts.samples import MADE_MS, fresh_name, fresh_view
from tests.stores.postgresql.places import connected, fresh_url, opened

COUNT, LIMIT = 4_000, 100


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_page_is_read_along_the_index_and_only_as_far_as_it_goes(rebuilt, analysed, mode):
    url = await fresh_url()
    async with opened(url) as stores, connected(url) as (connection, database):
        views = [_view(number) for number in range(COUNT)]
        if rebuilt:
            shadow = await stores.read_model.shadow()
            await shadow.save(views)
            assert await shadow.swap([fresh_name()], 0, []) is True
        else:
            await stores.read_model.save(views, [])
        if analysed:
            await connection.execute(database.sql.filled("analyze {schema}.requests"))
        await connection.execute(f"begin; set local plan_cache_mode = {mode}")
        await connection.execute(database.sql("walk_in_order"))
        text = database.sql("stale_views")
        await connection.execute(
            f"prepare walk (bigint, text, text, bigint, text, text, bigint) as {text}"
        )
        values = f"{MADE_MS * 2}, 'queued', 't1', {MADE_MS + 1_000}, '', '', {LIMIT}"
        ((plan,),) = await connection.fetch(
            f"explain (analyze, format json) execute walk ({values})"
        )
        await connection.execute("deallocate walk; rollback")
    nodes = _nodes(json.loads(plan)[0]["Plan"])
    assert [node["Node Type"] for node in nodes] == ["Limit", "Incremental Sort", "Index Scan"]
    assert nodes[1]["Presorted Key"] == ["tenant", "updated_at"]
    assert nodes[2]["Index Name"].endswith("_by_status")
    # One or two more than it shows, until the last millisecond of the page is known to be whole.
    assert nodes[0]["Actual Rows"] == LIMIT
    assert nodes[2]["Actual Rows"] < LIMIT + 5


def _view(number: int) -> View:
    """Most requests of a store are sent."""
    status = "queued" if number % 2 else "completed"
    return fresh_view(tenant=f"t{number % 4}", status=status, updated_at=MADE_MS + number // 3)


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for below in plan.get("Plans", ()) for node in _nodes(below))]
