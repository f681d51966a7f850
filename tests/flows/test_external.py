"""A flow that others execute, as it is declared.

What is handed out, reported and noticed is in tests/stations/test_external_*.py.
"""

from __future__ import annotations

import msgspec
import pytest

from gesta import Engine, InvalidRequest, external
from gesta.errors import BadFlow
from tests.world import let_run

FLOW, URL = "warehouse.pick", "memory:declared"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"on_unknown": "reconcile"}, "on_unknown"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": 301}, "lease_seconds"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_a_wrong_declaration_is_told(options, fault):
    with pytest.raises(BadFlow, match=fault):
        external(FLOW, **options)


async def test_a_flow_without_a_payload_type_takes_any_object(gesta):
    free = external("warehouse.any")
    async with Engine(URL, flows=[free, external("warehouse.other")]) as engine:
        fields = {"order": 7, "lines": [{"sku": "A"}]}
        request = await engine.submit(engine.payload("warehouse.any", fields), key="k")
        assert (
            await engine.submit(free.payload(dict(reversed(fields.items()))), key="k")
        ).verdict == "duplicate"
        await let_run(gesta)
        (item,) = await engine.external.take("warehouse.any")
        assert (item.id, msgspec.json.decode(item.payload)) == (request.id, fields)
        assert await request.payload() == free.payload(fields)
        with pytest.raises(InvalidRequest, match="must be a JSON object"):
            engine.payload("warehouse.any", [1])


def test_what_is_not_said_is_careful():
    flow = external(FLOW)
    assert (flow.is_external, flow.lease_seconds, flow.rules.on_unknown, flow.ttl_seconds) == (
        True,
        60.0,
        "manual",
        None,
    )


async def test_nothing_of_it_is_ever_executed_here():
    with pytest.raises(AssertionError, match="others execute"):
        await external(FLOW).execute(None, None)  # type: ignore[arg-type]


def test_two_flows_of_any_object_are_told_apart():
    one, other = external(FLOW), external("warehouse.post")
    assert one.payload is not other.payload
    assert one.payload.__name__ == "WarehousePick"
    engine = Engine(URL, flows=[one, other])
    with pytest.raises(BadFlow):
        engine.add(one)
