"""Payments that are started together: their calls are journalled in one write, before the first."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gesta import Engine, Money, Options, Request
from gesta.domain.transaction.events import CallStarted
from gesta.flows import card
from gesta.flows.payment.gateway import CallRefused, Connection, GatewayAccount, Instruction
from gesta.flows.payment.stripe import StripeGateway
from gesta.ports.fences import Fence
from gesta.ports.transactions import Entry
from gesta.runtime.settings import load
from gesta.testing.plugin import Harness
from tests.world import Ports, append_raw, let_run, pass_time

ACCOUNT = {"type": "stripe", "account": "acct_1", "api_key": "sk_test_1"}
STEPS = ["TransactionCreated", "AttemptStarted", "Completed"]
#: An authorization of 2.00 that another process executes, and the command to capture it.
ELSEWHERE = (
    ("AttemptStarted.v1", b'{"attempt":1,"key":"k","call":"AAAA","canLookUp":true}'),
    (
        "Authorized.v1",
        (
            b'{"attempts":1,"providerTxnId":"pi_1","amount":200,'
            b'"legs":[["payer",-200],["payer_held",200]]}'
        ),
    ),
    ("CaptureRequested.v1", b'{"amount":200,"intent":1}'),
)


@pytest.fixture
async def shop(gesta: Harness, ports: Ports):
    running = Engine("memory:", flows=[card.flow()])
    await running.start()
    await running.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
    # The keys of the tenant and of the account are read with the first payment.
    await running.submit(sale("1.00"))
    await gesta.settle()
    yield running
    await running.stop()


def sale(amount: str, gateway: str = "stripe-eu") -> card.Payment:
    return card.Sale(Money(amount, "EUR"), source="pm_1", gateway=gateway)


async def submit(shop: Engine, count: int = 5) -> list[Request]:
    made = await shop.submit_many([sale(f"{number}.00") for number in range(2, count + 2)])
    return [one for one in made if isinstance(one, Request)]


async def steps(shop: Engine, request: Request) -> list[str]:
    return [name.split(".")[-2] for name, _, _ in await shop.history(request.id)]


def started(entries: list[Entry]) -> list[CallStarted]:
    new = [one for entry in entries if entry.append for one in entry.append.events]
    events = [one.known.event for one in new if one.known is not None]
    return [one for one in events if isinstance(one, CallStarted)]


def keys(gesta: Harness) -> list[str]:
    """Of the payments after the first."""
    return [one.id for one in gesta.sandbox.stripe.effects][1:]


async def test_the_calls_of_a_batch_are_journalled_in_one_write_before_the_first_is_made(
    gesta, ports, shop
):
    writes: list[list[CallStarted]] = []

    async def look(original: Any, entries: list[Entry]) -> Any:
        if started(entries):
            writes.append(started(entries))
            assert keys(gesta) == []
        answer = await original(entries)
        assert not started(entries) or keys(gesta) == []
        return answer

    ports.transactions.replace("record", look)
    requests = await submit(shop)
    await gesta.settle()
    assert [len(write) for write in writes] == [len(requests)]
    assert all(one.call and one.request_hash and one.account for one in writes[0])  # B4
    assert keys(gesta) == [one.key for one in writes[0]]
    assert keys(gesta) == [f"default:{request.id}:sale:1" for request in requests]
    assert [await steps(shop, request) for request in requests] == [STEPS] * len(requests)


@pytest.mark.parametrize("answer_lost", [True, False])
async def test_a_failed_write_of_a_batch_is_repeated_and_each_payment_is_called_once(
    gesta, ports, shop, answer_lost
):
    ports.transactions.fail("record", answer_lost=answer_lost)
    requests = await submit(shop)
    await pass_time(gesta, 5)
    assert [await steps(shop, request) for request in requests] == [STEPS] * len(requests)
    assert sorted(keys(gesta)) == sorted(f"default:{request.id}:sale:1" for request in requests)


async def test_a_payment_whose_stream_has_changed_is_not_called_and_the_others_are(
    gesta, ports, shop
):
    requests: list[Request] = []

    async def cancel_one(original: Any, entries: list[Entry]) -> Any:
        if started(entries):
            ports.transactions.heal()
            # As another process writes it.
            name, change = "TransactionUpdated.v1", b'{"change":"cancel_requested"}'
            await append_raw(shop, requests[1].id, 1, name, change, flow=card.NAME)
        return await original(entries)

    ports.transactions.replace("record", cancel_one)
    requests += await submit(shop)
    await gesta.settle()
    others = [request for request in requests if request is not requests[1]]
    assert await requests[1].status() == "cancelled"
    assert [await steps(shop, request) for request in others] == [STEPS] * len(others)
    assert keys(gesta) == [f"default:{request.id}:sale:1" for request in others]


async def test_a_payment_that_cannot_be_rendered_does_not_disturb_its_batch(gesta, shop):
    await shop.admin.put_config("payment.gateway", "other", ACCOUNT | {"type": "unheard_of"})
    payments = [sale("2.00"), sale("3.00", "other"), sale("4.00"), sale("5.00", "gone")]
    made = [one for one in await shop.submit_many(payments) if isinstance(one, Request)]
    await pass_time(gesta, 5)
    assert keys(gesta) == [f"default:{made[at].id}:sale:1" for at in (0, 2)]
    assert [await made[at].status() for at in (0, 2)] == ["completed"] * 2
    assert "AttemptStarted" not in [*await steps(shop, made[1]), *await steps(shop, made[3])]


async def test_the_call_of_an_operation_is_not_journalled_for_the_next_one(gesta, ports, shop):
    """This process stood still after it had rendered the authorization. Meanwhile another one
    executed it, and the caller asked for the capture.
    """
    journalled: list[str] = []

    async def stand_still(original: Any, entries: list[Entry]) -> Any:
        if started(entries) and not journalled:
            for expected, (name, data) in enumerate(ELSEWHERE, start=1):
                await append_raw(shop, request.id, expected, name, data, flow=card.NAME)
        journalled.extend(one.key for one in started(entries))
        return await original(entries)

    ports.transactions.replace("record", stand_still)
    request = await shop.submit(
        card.Authorize(Money("2.00", "EUR"), source="pm_1", gateway="stripe-eu")
    )
    await pass_time(gesta, 5)
    # The gateway was never asked to authorize, so it does not know the payment to be captured.
    assert journalled == [f"default:{request.id}:{name}:1" for name in ("authorization", "capture")]
    assert keys(gesta) == []
    history = [one for _, one, _ in await shop.history(request.id) if isinstance(one, CallStarted)]
    assert [one.key for one in history] == ["k", journalled[1]]
    assert "Captured" not in await steps(shop, request)


async def test_a_cancelled_payment_is_not_called_because_another_batch_was_journalled_first(
    gesta, ports
):
    """With a queue of its own, two batches of one turn are written at a time."""
    shop = Engine(
        flows=[card.flow()], settings=load({"url": "memory:", "queue_url": "memory:queue"})
    )
    await shop.start()
    await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT)
    await shop.submit(sale("1.00"))
    await gesta.settle()
    shop.pipeline.recorder._commit._limit = 2
    second_is_written = asyncio.Event()

    async def write(original: Any, entries: list[Entry]) -> Any:
        if len(started(entries)) == 2 and not second_is_written.is_set():
            if started(entries)[0].key.startswith(f"default:{requests[0].id}:"):
                name, change = "TransactionUpdated.v1", b'{"change":"cancel_requested"}'
                await append_raw(shop, requests[0].id, 1, name, change, flow=card.NAME)
                await second_is_written.wait()
            else:
                answer = await original(entries)
                second_is_written.set()
                return answer
        return await original(entries)

    ports.transactions.replace("record", write)
    requests: list[Request] = []
    requests += await submit(shop, 4)
    await pass_time(gesta, 5)
    assert second_is_written.is_set()
    assert await requests[0].status() == "cancelled"
    assert sorted(keys(gesta)) == sorted(f"default:{one.id}:sale:1" for one in requests[1:])
    await shop.stop()


async def test_a_tenant_that_was_copied_to_another_store_does_not_stop_the_payments_of_its_batch(
    gesta, ports, shop
):
    await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT, tenant="gone")
    await shop.submit(sale("1.00"), tenant="gone")
    await gesta.settle()
    before = keys(gesta)

    async def put_up(original: Any, entries: list[Entry]) -> Any:
        if started(entries):
            await gesta._databases["memory:"].fences.put_up(Fence("left", "another", "gone"))
        return await original(entries)

    ports.transactions.replace("record", put_up)
    payments = [(sale("2.00"), "default"), (sale("3.00"), "gone"), (sale("4.00"), "default")]
    made = await asyncio.gather(*(shop.submit(one, tenant=tenant) for one, tenant in payments))
    await pass_time(gesta, 5)
    assert keys(gesta) == [*before, *(f"default:{made[at].id}:sale:1" for at in (0, 2))]
    assert [await made[at].status() for at in (0, 2)] == ["completed"] * 2
    ports.transactions.heal()
    await gesta._databases["memory:"].fences.take_down(Fence("left", "another", "gone"))
    await pass_time(gesta, 5)
    assert await made[1].status() == "completed"
    assert len(keys(gesta)) == len(before) + 3


async def test_a_key_that_the_gateway_quotes_is_hidden_though_the_call_was_rendered_twice(
    gesta, ports, shop, monkeypatch
):
    requests: list[Request] = []

    async def notify_one(original: Any, entries: list[Entry]) -> Any:
        if started(entries):
            ports.transactions.heal()
            # As the webhook writes it: the payment goes on, but its stream has changed.
            change = b'{"report":"evt_1","kind":"payment_intent.created"}'
            name = "GatewayNotified.v1"
            await append_raw(shop, requests[1].id, 1, name, change, flow=card.NAME)
        return await original(entries)

    async def quote(_: object, __: object, connection: Connection) -> CallRefused:
        return CallRefused("bad_key", f"the key {connection.api_key} may not do that")

    monkeypatch.setattr(StripeGateway, "execute", quote)
    ports.transactions.replace("record", notify_one)
    requests += await submit(shop, 3)
    await pass_time(gesta, 5)
    states = [(await request.view()).state for request in requests]
    assert [one.status for one in states] == ["failed"] * 3
    assert [one.detail for one in states] == ["bad_key: the key [hidden] may not do that"] * 3


async def test_payments_that_were_held_together_are_held_no_more_once_they_are_called(gesta, shop):
    await shop.admin.pause(flow=card.NAME)
    requests = await submit(shop, 3)
    await pass_time(gesta, 2)
    assert keys(gesta) == []
    await shop.admin.resume(flow=card.NAME)
    await pass_time(gesta, 2)
    states = [(await request.view()).state for request in requests]
    assert [(one.status, one.held) for one in states] == [("completed", "")] * 3


async def test_calls_of_a_batch_that_are_sent_again_are_not_rendered_again(
    gesta, ports, shop, monkeypatch
):
    rendered: list[str] = []
    render = StripeGateway.render

    def note(gateway: StripeGateway, instruction: Instruction, connection: Connection) -> Any:
        rendered.append(instruction.key)
        return render(gateway, instruction, connection)

    monkeypatch.setattr(StripeGateway, "render", note)
    stripe = gesta.sandbox.stripe
    stripe.visible_after_seconds = 10**9
    for _ in range(3):
        stripe.next(status=503)
    requests = await submit(shop, 3)
    await pass_time(gesta, 2)
    assert [await request.status() for request in requests] == ["unknown"] * 3
    resends = 0

    async def look(original: Any, *args: Any, **options: Any) -> Any:
        nonlocal resends
        answer = await original(*args, **options)
        resends = max(resends, sum(one.job.kind.startswith("execute") for one in answer[0]))
        return answer

    ports.queue.replace("take", look)
    for _ in range(6):
        # All that became due in an hour is leased together.
        gesta.advance(3_600)
        await let_run(gesta)
    assert resends == 3
    assert sorted(rendered) == sorted(f"default:{request.id}:sale:1" for request in requests)
    assert sorted(keys(gesta)) == sorted(rendered)


async def test_payments_that_expire_while_they_are_leased_together_are_not_called(
    gesta, ports, shop
):
    async def late(original: Any, *args: Any, **options: Any) -> Any:
        answer = await original(*args, **options)
        if answer[0]:
            ports.queue.heal()
            gesta.advance(3)
        return answer

    ports.queue.replace("take", late)
    at = datetime.fromtimestamp(gesta.runtime.now_ms() / 1000 + 10, UTC)
    options = Options(deliver_at=at, ttl=timedelta(seconds=2))
    made = await shop.submit_many([(sale(f"{number}.00"), options) for number in (2, 3)])
    await pass_time(gesta, 15)
    assert keys(gesta) == []
    statuses = [await request.status() for request in made if isinstance(request, Request)]
    assert statuses == ["expired"] * 2


async def test_no_call_of_a_batch_is_made_if_the_lease_was_lost_while_it_was_journalled(
    gesta, ports, shop
):
    async def lose(original: Any, entries: list[Entry]) -> Any:
        answer = await original(entries)
        if started(entries):
            ports.transactions.heal()
            shop.pipeline.pool.lease.lose("for the test")
        return answer

    ports.transactions.replace("record", lose)
    requests = await submit(shop, 3)
    await let_run(gesta)
    assert keys(gesta) == []
    await gesta.settle(days=1)
    assert sorted(keys(gesta)) == sorted(f"default:{request.id}:sale:1" for request in requests)


#: Tenant → what its account says that differs from a good one.
TENANTS: dict[str, dict[str, Any]] = {
    "good": {},
    "wrong-type": {"type": "unheard_of"},
    "bad-options": {
        "type": "http",
        "api_url": "https://pay.example",
        "options": {"colour": "blue"},
    },
    "bad-stripe": {"options": {"colour": "blue"}},
    "refused": {"api_key": "sk_test_revoked"},
    "paused": {},
    "cancelled": {},
    "notified": {},
    "good-too": {},
}
REFUSED = "refused:payment.gateway/stripe-eu"
#: What another process writes about a payment while its batch is being journalled.
CHANGES = {
    "cancelled": ("TransactionUpdated.v1", b'{"change":"cancel_requested"}'),
    "notified": ("GatewayNotified.v1", b'{"report":"evt_1","kind":"payment_intent.created"}'),
}


async def test_payments_of_many_tenants_leased_together_end_each_in_its_own_way(
    gesta, ports, shop, monkeypatch
):
    gesta.sandbox.stripe.api_keys.append("sk_test_1")
    writes: list[int] = []
    made: dict[str, Request] = {}

    async def change_some(original: Any, entries: list[Entry]) -> Any:
        if started(entries):
            ports.transactions.heal()
            writes.append(len(started(entries)))
            for tenant, (name, data) in CHANGES.items():
                await append_raw(
                    shop, made[tenant].id, 1, name, data, flow=card.NAME, tenant=tenant
                )
        return await original(entries)

    async def no_errors(*_: object) -> dict[str, str]:
        return {}

    with monkeypatch.context() as earlier:
        # As an earlier version of the code stored it.
        earlier.setattr(GatewayAccount, "errors", no_errors)
        for tenant, special in TENANTS.items():
            account = ACCOUNT | special
            await shop.admin.put_config("payment.gateway", "stripe-eu", account, tenant=tenant)
    await shop.admin.pause(tenant="paused")
    ports.transactions.replace("record", change_some)
    submitted = [shop.submit(sale("2.00"), tenant=tenant) for tenant in TENANTS]
    made |= dict(zip(TENANTS, await asyncio.gather(*submitted), strict=True))
    await pass_time(gesta, 5)
    # All that could be journalled without waiting were journalled in one write.
    assert writes == [5]
    assert await ends(made) == {
        "good": ("completed", "", ""),
        "wrong-type": ("queued", "gateway_type_missing", ""),
        "bad-options": ("queued", "", f"tenant:bad-options {REFUSED}"),
        "bad-stripe": ("queued", "", f"tenant:bad-stripe {REFUSED}"),
        "refused": ("queued", "", f"tenant:refused {REFUSED}"),
        "paused": ("queued", "", "tenant:paused"),
        "cancelled": ("cancelled", "cancelled", ""),
        "notified": ("completed", "", ""),
        "good-too": ("completed", "", ""),
    }
    assert await shop.admin.quarantined() == []
    for tenant in ("wrong-type", "bad-options", "bad-stripe", "refused"):
        await shop.admin.put_config("payment.gateway", "stripe-eu", ACCOUNT, tenant=tenant)
    await shop.admin.resume(tenant="paused")
    await pass_time(gesta, 60, step_seconds=1)
    assert {status for status, _, _ in (await ends(made)).values()} == {"completed", "cancelled"}
    charged = [tenant for tenant in TENANTS if tenant != "cancelled"]
    assert sorted(keys(gesta)) == sorted(f"{one}:{made[one].id}:sale:1" for one in charged)


async def ends(made: dict[str, Request]) -> dict[str, tuple[str, str, str]]:
    states = {tenant: (await one.view()).state for tenant, one in made.items()}
    return {tenant: (one.status, one.reason, one.held) for tenant, one in states.items()}
