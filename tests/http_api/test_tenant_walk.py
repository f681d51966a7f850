"""Every route of the table, with no key, with a key that does not allow it, and with another
tenant's key that allows everything.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gesta.http_api import app
from gesta.http_api.route import Answer, Call, Route, Stream
from tests.http_api.served import served
from tests.http_api.tenant_walk import (
    ALL,
    OWNER,
    calls_of,
    flows,
    owners_record,
    plant,
    refuse_marks,
    walk,
)

#: Routes that say the same to every tenant, or ask for the tenant that runs the process: taking a
#: caller for the owner does not help them.
SAME_FOR_ALL = {"list_flows", "list_config_kinds", "metrics", "forget_subscription"}


@pytest.mark.slow
async def test_nothing_of_another_tenant_is_shown_or_changed_by_any_route(store_url):
    async with served(store_url, flows()) as api:
        await walk(api, app.ROUTES, await plant(api))


@pytest.mark.slow
async def test_no_route_answers_without_a_key_or_without_its_scope(store_url):
    async with served(store_url, flows()) as api:
        planted = await plant(api)
        # Everything but this one, and but admin, which allows all.
        lacking = {
            scope: await api.key(*[one for one in ALL if one not in (scope, "admin")], tenant=OWNER)
            for scope in ALL
        }
        before = await owners_record(api)
        for route in app.ROUTES:
            if route.scope is None:
                continue
            for sent in calls_of(route, planted)[:2]:
                keyless = await api.call(route.method, sent.path, sent.body)
                assert (keyless.status, keyless.body["code"]) == (401, "key_missing"), sent
                refuse_marks(sent, keyless, planted)
                if route.scope != "any":
                    denied = await api.call(
                        route.method, sent.path, sent.body, key=lacking[route.scope]
                    )
                    assert (denied.status, denied.body["code"]) == (403, "scope_missing"), sent
                    refuse_marks(sent, denied, planted)
        assert await owners_record(api) == before


def forgetful(route: Route) -> Route:
    """The route, as if it took everybody for the owner."""

    async def handler(call: Call) -> Answer | Stream:
        return await route.handler(
            replace(call, grant=msgspec.structs.replace(call.grant, tenant=OWNER))
        )

    handler.__name__ = route.name
    return replace(route, handler=handler)


@pytest.mark.slow
@pytest.mark.parametrize(
    "route",
    # No reservation is planted, because external flows have none; the handler of `capture` finds
    # its transaction the same way.
    [route for route in app.ROUTES if route.scope is not None and route.name != "post_reservation"],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_the_walk_finds_each_route_that_forgets_the_tenant(route, monkeypatch):
    """On one store in memory: what is tried here is the walk."""
    broken = forgetful(route)
    monkeypatch.setattr(app, "ROUTES", [broken if one is route else one for one in app.ROUTES])
    async with served("memory:walk", flows()) as api:
        planted = await plant(api)
        if route.name in SAME_FOR_ALL:
            await walk(api, [broken], planted)
        else:
            with pytest.raises(AssertionError, match="of another tenant"):
                await walk(api, [broken], planted)


async def test_the_walk_complains_of_a_route_that_it_cannot_call(monkeypatch):
    async def nothing(_: Call) -> Answer:
        return Answer()

    route = Route("GET", "/v1/colours/{colour}", nothing, "read", "", "")
    async with served("memory:walk", flows()) as api:
        with pytest.raises(AssertionError, match="teach it"):
            await walk(api, [route], await plant(api))
