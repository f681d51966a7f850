"""Tenants' endpoints are notified about their requests: once for each event, by webhooks in
the same pipeline, which cause no further notifications.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gesta import Done, Engine, Rejected
from gesta.admin.doctor.checks import diagnose
from gesta.admin.doctor.collect import examine
from gesta.domain.status_events import STATUS_WEBHOOKS, Event
from gesta.errors import BadConfig, Fenced, StoreError
from gesta.flows import webhook
from gesta.flows.flow import Payload
from gesta.intake.submit_options import Options
from gesta.ports.fences import Fence
from gesta.subscriptions.log_consumer import BATCH
from gesta.subscriptions.status_webhooks import Listening, StatusWebhooks, request_of
from gesta.testing.plugin import Harness
from tests.world import FLOW, URL, Note, Provider, die, let_run, note_flow, pass_time

ENDPOINT = {"url": "https://shop.example/events", "secret": "whsec_" + "a" * 44}
CHECKPOINT = "subscription/gesta/webhooks"


def engine_of(provider: Provider | None = None) -> Engine:
    return Engine(URL, flows=[note_flow(provider or Provider()), webhook.flow()])


async def subscribe(
    engine: Engine, tenant: str = "default", code: str = "shop", **fields: Any
) -> None:
    await engine.admin.put_config(webhook.ENDPOINT, code, ENDPOINT, tenant=tenant)
    await engine.admin.put_config(
        webhook.SUBSCRIPTION, code, {"endpoint": code, **fields}, tenant=tenant
    )


def deliveries(gesta: Harness) -> list[tuple[str, str]]:
    """Status and request of everything that the endpoints have got."""
    return [
        (effect.data["status"], effect.data["requestId"])
        for effect in gesta.sandbox.webhook.effects
    ]


async def test_an_endpoint_gets_every_end_signed_and_without_the_payload(gesta):
    gesta.sandbox.webhook.secrets = [ENDPOINT["secret"]]
    async with engine_of(
        Provider(Rejected("bad_address", "ada@example.com"), Done(id="p-2"))
    ) as engine:
        await subscribe(engine, statuses=["completed", "failed"])
        failed = await engine.submit(Note("a secret text"), key="order-7", correlation_id="c-1")
        await gesta.settle()
        sent = await engine.submit(Note())
        await gesta.settle()
        state = (await engine.get(failed.id)).state
    assert deliveries(gesta) == [("failed", failed.id), ("completed", sent.id)]
    first = gesta.sandbox.webhook.effects[0]
    assert first.type == "request.failed"
    assert {
        name: first.data[name]
        for name in ("flow", "key", "reason", "correlationId", "version", "attempts", "providerId")
    } == {
        "flow": FLOW,
        "key": "order-7",
        "reason": "bad_address",
        "correlationId": "c-1",
        "version": 2,
        "attempts": 1,
        "providerId": None,
    }
    assert first.data["at"].endswith("Z")
    assert set(first.data) == {
        "id",
        "flow",
        "status",
        "requestId",
        "version",
        "key",
        "reason",
        "attempts",
        "providerId",
        "at",
        "correlationId",
        "test",
    }
    assert state.status == "failed"
    assert "secret" not in first.text
    assert "ada@" not in first.text
    assert gesta.sandbox.webhook.refusals == []


async def test_an_endpoint_gets_only_the_subscribed_events_of_its_tenant(gesta):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["completed"], flow="test.*")
        await subscribe(engine, "other", "theirs", flow=webhook.NAME)
        mine = await engine.submit(Note())
        await engine.submit(Note(), tenant="other")
        await engine.submit(Note(), tenant="third")
        await gesta.settle()
        assert deliveries(gesta) == [("completed", mine.id)]
        assert {
            view.state.tenant
            for tenant in ("default", "other", "third")
            for view in await engine.find(tenant=tenant)
        } == {"default", "other", "third"}
        assert await engine.find(tenant="other", flow=webhook.NAME) == []


async def test_event_webhooks_cause_no_events_but_a_tenants_own_webhooks_do(gesta):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["sent", "created"])
        own = await engine.submit(webhook.Message("order.paid", {}, "shop"))
        await gesta.settle()
        # Created and sent of the tenant's own webhook; nothing of the two deliveries that reported
        # it.
        assert sorted(deliveries_about_requests(gesta)) == [("created", own.id), ("sent", own.id)]
        deliveries = [
            view for view in await engine.find(flow=webhook.NAME) if view.state.id != own.id
        ]
        assert {view.state.source for view in deliveries} == {"gesta/webhooks"}
        assert len(deliveries) == 2
        history = await engine.history(deliveries[0].state.id)
        assert {meta.source for _, _, meta in history} == {"gesta/webhooks"}


def deliveries_about_requests(gesta: Harness) -> list[tuple[str, str]]:
    effects = gesta.sandbox.webhook.effects
    return [
        (effect.data["status"], effect.data["requestId"])
        for effect in effects
        if effect.type.startswith("request.")
    ]


async def test_two_subscriptions_of_a_tenant_each_get_an_event_once(gesta):
    async with engine_of() as engine:
        await subscribe(engine, code="a", statuses=["completed"])
        await subscribe(engine, code="b", statuses=["completed"])
        request = await engine.submit(Note())
        await gesta.settle()
    assert deliveries(gesta) == [("completed", request.id)] * 2


async def test_a_crash_between_submit_and_checkpoint_sends_no_second_webhook(gesta, monkeypatch):
    engine = engine_of()
    await engine.start()
    await subscribe(engine, statuses=["created"])
    await gesta.settle()
    reached = asyncio.Event()

    async def never(_: StatusWebhooks) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(StatusWebhooks, "_move", never)
        request = await engine.submit(Note())
        while not (reached.is_set() and deliveries(gesta)):
            await asyncio.sleep(0)
        await let_run(gesta)
        stores = engine.pipeline.environment.stores
        assert await stores.checkpoints.position(CHECKPOINT) < await stores.events.end()
        await die(engine)
    async with engine_of() as engine:
        await pass_time(gesta, 10)
        await gesta.settle()
        assert (
            await engine.pipeline.environment.stores.checkpoints.position(CHECKPOINT)
            == await engine.pipeline.environment.stores.events.end()
        )
        assert len(await engine.find(flow=webhook.NAME)) == 1
    assert deliveries(gesta) == [("created", request.id)]
    assert gesta.sandbox.webhook.effects[0].receipts == 1


async def test_a_webhook_submitted_before_its_subscription_changed_is_not_repeated(
    gesta, monkeypatch
):
    engine = engine_of()
    await engine.start()
    await subscribe(engine, statuses=["completed"])
    await gesta.settle()
    with monkeypatch.context() as patch:

        async def fails(_: StatusWebhooks) -> None:
            raise StoreError("gone")

        patch.setattr(StatusWebhooks, "_move", fails)
        await engine.submit(Note())
        await let_run(gesta)
        await die(engine)
    async with engine_of() as engine:
        await engine.admin.put_config(webhook.ENDPOINT, "new", ENDPOINT)
        await engine.admin.put_config(
            webhook.SUBSCRIPTION, "shop", {"endpoint": "new", "statuses": ["completed"]}
        )
        await pass_time(gesta, 10)
        await gesta.settle()
        assert len(await engine.find(flow=webhook.NAME)) == 1
    assert len(deliveries(gesta)) == 1


async def test_no_process_reads_the_log_until_the_first_subscription(gesta):
    async with engine_of() as engine:
        await engine.submit(Note())
        await pass_time(gesta, 5)
        stores = engine.pipeline.environment.stores
        assert CHECKPOINT not in {one.name for one in await stores.checkpoints.checkpoints()}
        assert CHECKPOINT not in {one.name for one in await stores.leases.roles()}
    assert CHECKPOINT not in {one.name for one in await stores.leases.roles()}


async def test_a_subscription_stored_by_another_process_is_served(gesta):
    async with engine_of() as engine:
        await pass_time(gesta, 2)
        async with Engine(URL, flows=[webhook.flow()], work=False) as other:
            await subscribe(other, statuses=["completed"])
        request = await engine.submit(Note())
        await pass_time(gesta, 2)
        assert deliveries(gesta) == [("completed", request.id)]


async def test_a_missing_endpoint_delays_no_other_and_is_reported(gesta):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["completed"])
        await subscribe(engine, "other", statuses=["completed"])
        await engine.admin.delete_config(webhook.ENDPOINT, "shop")
        await engine.submit(Note())
        theirs = await engine.submit(Note(), tenant="other")
        await gesta.settle()
        assert deliveries(gesta) == [("completed", theirs.id)]
        findings = diagnose(await examine(engine.pipeline, "default"))
        assert ("warn", "sends nothing: there is no webhook.endpoint shop") in [
            (one.level, one.status) for one in findings
        ]
        (shown,) = await engine.admin.event_webhooks()
        assert shown.error == "there is no webhook.endpoint shop"
        await engine.admin.put_config(webhook.ENDPOINT, "shop", ENDPOINT)
        mine = await engine.submit(Note())
        await gesta.settle()
        assert deliveries(gesta)[1:] == [("completed", mine.id)]
        assert [one.error for one in await engine.admin.event_webhooks()] == [""]


async def test_a_disabled_endpoint_gets_no_more_event_webhooks(gesta):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["completed"])
        gesta.sandbox.webhook.next(status=410)
        for _ in range(3):
            await engine.submit(Note())
            await gesta.settle()
        assert len(await engine.find(flow=webhook.NAME)) == 1
        assert "disabled" in (await engine.admin.event_webhooks())[0].error


async def test_the_webhooks_of_a_batch_are_submitted_together(gesta, monkeypatch):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["created"])
        await gesta.settle()
        sizes: list[int] = []
        submit_each = engine.pipeline.intake.submit_each

        async def watch(requests: Any) -> Any:
            sizes.append(len(requests))
            return await submit_each(requests)

        monkeypatch.setattr(engine.pipeline.intake, "submit_each", watch)
        await submit_each([(Note(str(n)), Options()) for n in range(BATCH)])
        await gesta.settle()
        assert sizes == [BATCH]
    assert len(deliveries(gesta)) == BATCH


async def test_a_tenant_moved_to_another_store_delays_no_other(gesta):
    async with engine_of() as engine:
        for tenant in ("default", "other"):
            await subscribe(engine, tenant, statuses=["sent"])
        await gesta.settle()
        status_webhooks, stores = (
            engine.pipeline.status_webhooks,
            engine.pipeline.environment.stores,
        )
        assert status_webhooks is not None
        # What happened to both before one of them left, and was not delivered yet.
        requests = [
            (
                webhook.Message("request.sent", {}, "shop"),
                Options("status/shop/1", tenant, source=STATUS_WEBHOOKS),
            )
            for tenant in ("default", "other")
        ]
        await stores.fences.put_up(Fence("left", "another store", "other"))
        await status_webhooks._submit(requests)
        await gesta.settle()
        assert len(await engine.find(flow=webhook.NAME)) == 1
        await stores.fences.put_up(Fence("left", "another store"))
        with pytest.raises(Fenced):
            await status_webhooks._submit(requests)
        await stores.fences.take_down(Fence("left", "another store"))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"flow": "nonsense"}, "flow: 'nonsense' is not a flow"),
        ({"flow": "shop.misspelt"}, "flow: this process declares no flow 'shop.misspelt'.*known: "),
        (
            {"flow": "shpo.*", "statuses": ["sold"]},
            "flow: this process declares no flow 'shpo.[*]'.*statuses: 'sold' is not a status",
        ),
        ({"statuses": ["sold"]}, "statuses: 'sold' is not a status"),
        ({"endpoint": ""}, "endpoint"),
        ({"url": "https://x.example"}, "url"),
    ],
)
async def test_a_wrong_subscription_is_refused_and_no_checkpoint_begins(gesta, fields, error):
    async with engine_of() as engine:
        with pytest.raises(BadConfig, match=error):
            await engine.admin.put_config(webhook.SUBSCRIPTION, "shop", fields)
        assert CHECKPOINT not in {
            one.name for one in await engine.pipeline.environment.stores.checkpoints.checkpoints()
        }


async def test_a_flow_of_another_process_can_be_subscribed_once_the_tenant_has_requests_of_it(
    gesta,
):
    async with engine_of() as engine, Engine(URL, flows=[webhook.flow()], work=False) as other:
        with pytest.raises(BadConfig, match="no flow"):
            await other.admin.put_config(webhook.SUBSCRIPTION, "shop", {"flow": FLOW})
        await engine.submit(Note())
        await gesta.settle()
        await other.admin.put_config(webhook.SUBSCRIPTION, "shop", {"flow": FLOW})
        with pytest.raises(BadConfig, match="no flow"):
            await other.admin.put_config(
                webhook.SUBSCRIPTION, "shop", {"flow": FLOW}, tenant="acme"
            )


async def test_the_event_webhook_of_a_test_request_goes_to_the_sandbox(gesta):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["sent"])
        await engine.submit_many([(webhook.Message("order.paid", {}, "shop"), Options(test=True))])
        await gesta.settle()
        views = await engine.find(flow=webhook.NAME)
        assert {(view.state.source, view.state.test, view.state.status) for view in views} == {
            ("gesta", True, "sent"),
            ("gesta/webhooks", True, "sent"),
        }
        assert len(views) == 2
    # The world outside, which in this test is the harness's.
    assert gesta.sandbox.webhook.calls == 0


async def test_a_key_that_masking_made_longer_does_not_block_event_webhooks(
    gesta,
):
    async with engine_of() as engine:
        await subscribe(engine, statuses=["completed"])
        await subscribe(engine, "other", "theirs", statuses=["completed"])
        grown = await engine.submit(Note(), correlation_id=",".join(["a@b.co"] * 73))
        others = await engine.submit(Note(), tenant="other")
        await gesta.settle()
    assert sorted(deliveries(gesta)) == sorted([("completed", grown.id), ("completed", others.id)])


async def test_a_webhook_that_intake_refuses_is_logged_and_blocks_no_other(
    gesta, monkeypatch, caplog
):
    def bad_for_default(event: Event, one: Listening) -> tuple[Payload, Options]:
        message, options = request_of(event, one)
        return message, msgspec.structs.replace(
            options, key=""
        ) if event.tenant == "default" else options

    monkeypatch.setattr("gesta.subscriptions.status_webhooks.request_of", bad_for_default)
    async with engine_of() as engine:
        await subscribe(engine, statuses=["completed"])
        await subscribe(engine, "other", "theirs", statuses=["completed"])
        await engine.submit(Note())
        others = await engine.submit(Note(), tenant="other")
        await gesta.settle()
    assert deliveries(gesta) == [("completed", others.id)]
    assert "event webhook refused" in caplog.text
