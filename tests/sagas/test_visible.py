"""Sagas are seen where other requests are: lists, the doctor, the HTTP API."""

from __future__ import annotations

from typing import Any

from gesta import Attempt, Done, Engine, Flow, Outcome, Unknown
from gesta.admin.doctor.checks import diagnose
from gesta.admin.doctor.collect import examine, examine_request
from gesta.admin.doctor.explain import why_not_sent
from gesta.cli.backend import InProcess
from gesta.client.client import Client
from gesta.domain.commands import Rules
from gesta.http_api.app import Web
from gesta.tenants.api_keys import Grant
from tests.sagas.trips import Book, Trip, Unbook, trip


async def book(payload: Book, _: Attempt) -> Outcome:
    return Unknown("timeout") if payload.what == "hotel" else Done(payload.what)


async def unbook(_payload: Unbook, _: Attempt) -> Outcome:
    return Done()


def engine() -> Engine:
    rules = Rules(on_unknown="manual")
    flows = [trip, Flow("trip.book", Book, book, rules), Flow("trip.unbook", Unbook, unbook, rules)]
    return Engine("memory:visible", flows=flows)


async def test_a_waiting_saga_is_listed_and_explained(gesta):
    async with engine() as running:
        request = await running.submit(Trip("rome"), key="rome")
        await gesta.settle(days=1)
        (view,) = await running.find(status="waiting")
        assert (view.state.id, view.state.flow) == (request.id, "saga.trip")
        step = view.state.facts["steps"]["hotel"]["id"]
        facts = await examine_request(running.pipeline, view)
        text = f"it waits for the outcome of step hotel, request {step}"
        assert why_not_sent(facts) == text
        about = [one.about for one in diagnose(await examine(running.pipeline, "default"))]
        assert "subscription gesta/sagas" in about
        await request.cancel()
        await (await running.request(step)).resolve("rejected", by="ada", evidence="a call")
        await gesta.settle()
        after = await examine_request(running.pipeline, await request.view())
        assert why_not_sent(after).startswith("it was compensated at")


async def test_a_saga_is_submitted_shown_and_cancelled_over_http(gesta):
    async with engine() as running:
        grant = Grant(
            key_id="",
            tenant="default",
            scopes=frozenset({"admin"}),
            name="ada",
            is_test=False,
            expires_ms=None,
        )

        async def api() -> Any:
            return Web(running, grant=grant)

        client = Client(line=InProcess(api))
        accepted = await client.submit("saga.trip", {"name": "rome"}, key="rome")
        await gesta.settle(days=1)
        assert (await client.get(accepted.id)).status == "waiting"
        listed = [one.id async for one in client.find(status="waiting")]
        assert listed == [accepted.id]
        await client.cancel(accepted.id)
        await gesta.settle(days=1)
        # The hotel is unknown, so nothing is undone yet.
        assert (await client.get(accepted.id)).status == "waiting"
