"""Processes that execute card payments are killed between any two steps, and the gateway, a process
of its own, goes on: each payment is made once, and the record says what the gateway did.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gesta import Engine, Money, Request
from gesta.domain.transaction.funds import funds_of
from gesta.flows import card
from gesta.payments.ledger import errors_of
from gesta.testing.moto_server import CREDENTIALS, MotoServer
from gesta.testing.valkey_server import ValkeyServer
from tests.crash.cashier import NOT_ANSWERED, POINTS, WEBHOOK, main, open_engine
from tests.crash.program import Plan
from tests.crash.stage import PATIENCE_SECONDS, PROCESSES, eventually
from tests.stores.postgresql.places import fresh_url

SECRET = "whsec_of_the_endpoint"
PATH = "/inbound/gateway/default/default"
PRICE = 4_990
#: What the killed processes were asked for, one at each point.
ASKED = ("sale", "authorize", "capture", "capture", "refund")
#: The shortest that outlasts a call: SQS shows a message of a dead process again after it.
VISIBILITY_SECONDS = 6
#: SQS gives a message up that three workers died with, and the sweeper puts its job again.
LOST_MS = 10_000


class Gateway:
    """The sandbox's fake of Stripe in a process of its own."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    async def control(self, path: str, **what: Any) -> int:
        async with self._session.post(f"{self.url}/sandbox/stripe/{path}", json=what) as answer:
            return answer.status

    async def heal(self) -> None:
        await self._session.delete(f"{self.url}/sandbox/stripe/faults")

    async def effects(self) -> list[dict[str, Any]]:
        async with self._session.get(f"{self.url}/sandbox/stripe/effects") as answer:
            found: list[dict[str, Any]] = (await answer.json())["effects"]
            return found

    async def post_webhook(self, address: str, number: int = -1) -> int:
        """400: the process that got it died, or there is no such event."""
        return await self.control("reports", url=address + PATH, secret=SECRET, event=number)


@asynccontextmanager
async def gateway() -> AsyncIterator[Gateway]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gesta.sandbox", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        async with aiohttp.ClientSession() as session:
            yield Gateway(json.loads(line)["url"], session)
    finally:
        process.kill()
        await process.wait()


class Shop:
    """What the test holds: an engine that does not work, and processes that do."""

    def __init__(self, plan: Plan, engine: Engine, stripe: Gateway, dice: random.Random) -> None:
        self.plan, self.engine, self.stripe, self.dice = plan, engine, stripe, dice
        self.payments: list[Request] = []

    async def pay(self, operation: str) -> tuple[Request, str]:
        make = card.Sale if operation == "sale" else card.Authorize
        payment = make(Money.of_minor(PRICE, "EUR"), source="pm_1")
        tx = await self.engine.submit(payment, key=f"order-{len(self.payments)}")
        self.payments.append(tx)
        name = "sale" if operation == "sale" else "authorization"
        return tx, f"default:{tx.id}:{name}:1"

    async def ask(self, operation: str, ready: dict[str, list[Request]]) -> tuple[Request, str]:
        """Open an operation that no process has begun; its transaction and its idempotency key."""
        if operation in ("sale", "authorize"):
            return await self.pay(operation)
        tx = ready[operation].pop()
        part = Money.of_minor(self.dice.choice([1, 2_000, PRICE]), "EUR")
        act = tx.capture if operation == "capture" else tx.refund
        await act(part, key="once")
        return tx, f"default:{tx.id}:{operation}:1"

    @asynccontextmanager
    async def cashier(self, point: str = "") -> AsyncIterator[tuple[Any, str]]:
        """A process that works, and its address."""
        place = Path(self.plan.folder) / "address"
        place.unlink(missing_ok=True)
        child = PROCESSES.Process(target=main, args=(self.plan, point))
        child.start()
        try:
            await eventually(lambda: place.exists() or not child.is_alive(), "it did not start")
            # One that met its point while it started has written no address, and needs none.
            yield child, place.read_text(encoding="ascii") if place.exists() else ""
        finally:
            child.kill()
            await asyncio.to_thread(child.join)

    async def kill_at(self, point: str, operation: str, ready: dict[str, list[Request]]) -> None:
        tx, key = await self.ask(operation, ready)
        if point == NOT_ANSWERED:
            await self.stripe.control("faults", match=key, slow_seconds=4, times=1)
        if point == WEBHOOK:
            await self.stripe.control("faults", match=key, drop=True, times=1)
            await self.stripe.control("faults", match="sk_test_1", status=500)
        async with self.cashier(point) as (child, address):
            if point == NOT_ANSWERED:
                await eventually(self._is_called(key), "the gateway was not called")
                child.kill()
            if point == WEBHOOK:
                await eventually(self._is_unknown(tx), "the outcome is not unknown")
                assert await self.stripe.post_webhook(address) == 400
            await eventually(lambda: not child.is_alive(), f"{point}: it was not reached")
            assert child.exitcode == -signal.SIGKILL
        await self.stripe.heal()

    def _is_called(self, key: str) -> Callable[[], Awaitable[bool]]:
        async def is_called() -> bool:
            return key in {one["id"] for one in await self.stripe.effects()}

        return is_called

    def _is_unknown(self, tx: Request) -> Callable[[], Awaitable[bool]]:
        async def is_unknown() -> bool:
            return (await tx.view()).state.phase == "unknown"

        return is_unknown

    async def is_at_rest(self) -> bool:
        states = [(await tx.view()).state for tx in self.payments]
        return all(one.phase in ("idle", "ended") for one in states)


@asynccontextmanager
async def placed(kind: str, folder: Path, stripe: Gateway) -> AsyncIterator[Plan]:
    """The stores of a kind."""
    plan = Plan(str(folder), stripe.url, "server")
    async with AsyncExitStack() as stack:
        match kind:
            case "sqlite":
                # Two files: between the record and the acknowledgement of a job there is a moment.
                yield replace(plan, layout="separate")
            case "redis":
                server = await stack.enter_async_context(ValkeyServer(durable=True))
                at = server.url
                yield replace(plan, url=await fresh_url(), views_url=at, queue_url=at)
            case "sqs":
                moto = await stack.enter_async_context(MotoServer())
                at = moto.queue_url("gesta", VISIBILITY_SECONDS)
                yield replace(plan, queue_url=at, lost_ms=LOST_MS)
            case _:
                yield replace(plan, url=await fresh_url())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "redis", "sqs"])
async def test_each_payment_is_made_once_wherever_its_process_is_killed(
    tmp_path, crash_seed, kind, monkeypatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    dice = random.Random(crash_seed)
    async with (
        gateway() as stripe,
        placed(kind, tmp_path, stripe) as plan,
        open_engine(plan, work=False) as engine,
    ):
        shop = Shop(plan, engine, stripe, dice)
        account = {
            "type": "stripe",
            "account": "acct_1",
            "api_key": "sk_test_1",
            "api_url": f"{stripe.url}/stripe",
            "webhook_secret": SECRET,
        }
        await engine.admin.put_config("payment.gateway", "default", account)
        # With every other seed a search finds a payment at once; else only a resend can tell.
        hidden_seconds = (3_600, 0)[crash_seed % 2]
        await stripe.control("clock", visible_after_seconds=hidden_seconds)
        await trade(shop, dice)
        for tx in shop.payments:
            await check(tx, engine, await stripe.effects())


async def trade(shop: Shop, dice: random.Random) -> None:
    ready = {
        "capture": [(await shop.pay("authorize"))[0] for _ in range(3)],
        "refund": [(await shop.pay("sale"))[0]],
    }
    async with shop.cashier():
        await eventually(shop.is_at_rest, "the first payments were not made")
    asked = dice.sample(ASKED, len(ASKED))
    for point in dice.sample(POINTS, len(POINTS)):
        # A webhook of Stripe about a refund does not name the payment by our reference.
        operation = dice.choice(ASKED[:3]) if point == WEBHOOK else asked.pop()
        await shop.kill_at(point, operation, ready)
    async with shop.cashier() as (_, address):
        await eventually(shop.is_at_rest, "not every outcome became known")
        # What could not be delivered comes again, twice, in any order.
        numbers = [number for number in range(2 * len(shop.payments)) for _ in range(2)]
        for number in dice.sample(numbers, len(numbers)):
            assert await shop.stripe.post_webhook(address, number) == 200
        await eventually(shop.is_at_rest, "a webhook made an outcome unknown")


async def check(tx: Request, engine: Engine, effects: list[dict[str, Any]]) -> None:
    """What the gateway did is what was asked for, once, and what is on record."""
    state = (await tx.view()).state
    ours = [one for one in effects if tx.id in one["id"]]
    # K-16, S1-1, S1-6
    assert Counter(one["id"] for one in ours).most_common(1)[0][1] == 1, state
    assert len([one for one in ours if one["type"] in ("sale", "authorize")]) == 1, state
    moved: Counter[str] = Counter()
    for one in ours:
        data = one["data"]
        moved[one["type"]] += int(data.get("amount_to_capture") or data.get("amount"))
    funds = funds_of(state)
    assert funds.authorized == PRICE == moved["sale"] + moved["authorize"], state
    assert funds.captured == moved["sale"] + moved["capture"] <= PRICE, state
    assert funds.refunded == moved["refund"] <= funds.captured, state
    # S1-24: every amount is posted twice.
    assert errors_of(state) == []
    history = [name for name, _, _ in await engine.history(tx.id)]
    succeeded = [name for name in history if name.split(".")[2] in SUCCESSES]
    assert len(succeeded) == len(ours), history


SUCCESSES = {"Completed", "Authorized", "Captured", "Refunded"}
