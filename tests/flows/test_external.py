"""Declarations of external flows. tests/worker/external has the tests of leases and reports."""

from __future__ import annotations

import msgspec
import pytest

from gesta import Engine, InvalidRequest, external
from gesta.errors import BadFlow
from gesta.flows.flow import DEFAULT_RETRY
from tests.world import let_run

FLOW, URL = "warehouse.pick", "memory:declared"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_unknown": None}, "choose on_unknown"),
        ({"on_unknown": "reconcile"}, "on_unknown"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": 301}, "lease_seconds"),
        ({"attempts": 0}, "attempts"),
    ],
)
def test_a_wrong_declaration_is_refused(options, error):
    with pytest.raises(BadFlow, match=error):
        external(FLOW, **{"on_unknown": "manual", **options})


def test_the_error_of_an_external_flow_without_on_unknown_explains_each_choice():
    with pytest.raises(BadFlow) as error:
        external(FLOW)
    for part in ("'resend' tries again", "'manual' stops", "gesta cannot ask the worker"):
        assert part in str(error.value)


async def test_a_flow_without_a_payload_type_takes_any_object(gesta):
    free = external("warehouse.any", on_unknown="manual")
    async with Engine(
        URL, flows=[free, external("warehouse.other", on_unknown="manual")]
    ) as engine:
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


def test_an_external_flow_has_a_lease_of_a_minute_and_retries_for_hours_by_default():
    flow = external(FLOW, on_unknown="manual")
    assert (flow.is_external, flow.lease_seconds, flow.ttl_seconds) == (True, 60.0, None)
    assert flow.rules.retry == DEFAULT_RETRY


async def test_an_external_flow_is_never_executed_by_gesta():
    with pytest.raises(AssertionError, match="executed by gesta"):
        await external(FLOW, on_unknown="manual").execute(None, None)  # type: ignore[arg-type]


def test_two_external_flows_without_payload_type_have_payload_types_of_their_own():
    one, other = (
        external(FLOW, on_unknown="manual"),
        external("warehouse.post", on_unknown="manual"),
    )
    assert one.payload is not other.payload
    assert one.payload.__name__ == "WarehousePick"
    engine = Engine(URL, flows=[one, other])
    with pytest.raises(BadFlow):
        engine.add(one)
