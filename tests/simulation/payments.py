"""Card payments in the simulation: processes that die, a gateway that loses answers, forgets keys
and hides what it did, webhooks in any order, and an operator who points the config elsewhere.

The truth is what two fakes of Stripe did, one for each account.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from urllib.parse import parse_qs

from gesta.domain.money import Money
from gesta.domain.transaction.funds import Funds, funds_of
from gesta.errors import (
    Busy,
    Conflict,
    InvalidSignature,
    ListingFailed,
    Refused,
    StoreError,
)
from gesta.flows import card
from gesta.flows.payment import webhooks
from gesta.flows.payment.gateway import GATEWAY
from gesta.outbound.http import Headers, HttpRequest, HttpResponse, Transport, TransportError
from gesta.ports.read_model import View
from gesta.sandbox.stripe import FakeStripe
from tests.simulation.checks import Broken, PromiseChecks
from tests.simulation.options import CALM, Options, options
from tests.simulation.process import Process
from tests.simulation.replay import Failed, trace_lines
from tests.simulation.world import World

SECRET = "whsec_simulated"
CODE = "stripe-eu"
HOUR = 3_600.0
#: From 23 hours after its first call, nothing of an intent is sent.
RESEND_SECONDS = 23 * HOUR
#: Five daily look-ups follow the first ones; then a person has to decide.
REST_SECONDS = 9 * 86_400.0
#: Longer than the comparison at the end and the skew of a clock.
EXPIRES_SOON_SECONDS = 30.0
#: Sources and how often they are used.
SOURCES = ("pm_1", "pm_1", "pm_1", "pm_card_chargeDeclined")
FATES = (
    "lost",
    "lost",
    "lost",
    "not_reached",
    "refused_500",
    "stored_500",
    "lost_500",
    "throttled",
    "in_use",
    "hangs",
    "garbled",
)
EXPECTED = (StoreError, Refused, Busy, Conflict, ListingFailed)


class GatewayLine:
    """The way from one process to the accounts: a call may be lost on each half of it."""

    def __init__(self, world: PaymentWorld, process: Process) -> None:
        self._world, self._process = world, process

    async def send(self, request: HttpRequest) -> HttpResponse:
        world, process = self._world, self._process
        fate = world.fate(request)
        await world.loop.delay(world.random.random() * 0.3)
        if fate == "not_reached":
            raise TransportError("refused", sent=False)
        if world.chance(world.rates.crash_at_provider):
            world.crash(process, "before the call arrives")
            # The message has left: it arrives whatever became of its sender.
            world.later(world.random.random() * 2, world.receive, request, "")
            await world.loop.delay(0)
        reply = world.receive(request, fate)
        if world.chance(world.rates.crash_at_provider):
            world.crash(process, "before the answer arrives")
        await world.loop.delay(world.random.random() * 0.3)
        if fate == "hangs":
            await world.loop.delay(request.timeout_seconds)
            raise TransportError("timeout", sent=True)
        if reply.drop or fate == "lost":
            raise TransportError("reset", sent=True)
        body = b"<html>" if fate == "garbled" else reply.body
        return HttpResponse(reply.status, Headers(reply.headers.items()), body)

    async def close(self) -> None:
        """Nothing is open."""


class Gateways:
    """What the simulation has to know of its provider."""

    def __init__(self, world: PaymentWorld) -> None:
        self.flows = [card.flow(), webhooks.flow()]
        self.calls: dict[str, list[Any]] = {}
        self.on_the_way = 0
        self.is_busy = False


class PaymentChecks(PromiseChecks):
    """No double charge, no wrong record, nothing forgotten."""

    def put(self, jobs: Any) -> None:
        """Whether jobs are lost is checked by the other worlds."""

    def take(self, process: Process) -> None:
        """As above."""

    def projected(self, jobs: Any) -> None:
        """As above."""

    def at_rest(self) -> None:
        world = self._world
        assert isinstance(world, PaymentWorld)
        self._holds("everything comes to rest", world._is_at_rest(), "")
        views = {key: view for key, view in self.views().items() if key[0] == card.NAME}
        self._holds("what was accepted exists", world.accepted <= {key[2] for key in views}, "")
        for view in views.values():
            self._record(view)
        for fake in world.fakes.values():
            self._truth(fake)

    def _truth(self, fake: FakeStripe) -> None:
        for intent in fake.books.of_kind("payment_intent"):
            name = intent["id"]
            back = sum(
                one["amount"]
                for one in fake.books.of_kind("refund")
                if one["payment_intent"] == name
            )
            received = intent["amount_received"]
            self._holds(
                "captured is at most what was authorized", received <= intent["amount"], name
            )
            self._holds("refunded is at most what was captured", back <= received, name)

    def _record(self, view: View) -> None:
        """One effect for each intent, and the record is what happened, or unknown and reported."""
        state, world = view.state, self._world
        assert isinstance(world, PaymentWorld)
        name, funds = world.short(state.id), funds_of(state)
        effects = world.effects_of(state.id)
        twice = {
            key: count for key, count in Counter(one[0] for one in effects).items() if count > 1
        }
        self._holds("no movement happens twice", not twice, f"{name}: {twice}")
        payments = {payment for _, kind, payment, _ in effects if kind in ("authorize", "sale")}
        self._holds("no payment is made twice", len(payments) <= 1, f"{name}: {payments}")
        balance = sum(funds.balances.values())
        self._holds("the ledger of a transaction sums to zero", balance == 0, f"{name}: {balance}")
        sane = 0 <= funds.refunded <= funds.captured <= max(funds.authorized, funds.requested)
        self._holds("the amounts on record are possible", sane, f"{name}: {funds}")
        if state.phase == "unknown":
            world.hit("rest_unknown")
            self._holds("what is unknown waits for a person", state.waits_for_a_person, name)
            return
        world.hit(f"rest_{state.status}")
        self._holds(
            "the record is what happened",
            _moved(effects) == _recorded(funds),
            f"{name} is {state.status}: {_moved(effects)}, on record {_recorded(funds)}",
        )


def _moved(effects: list[tuple[str, str, str, int]]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for _, kind, _, amount in effects:
        if kind in ("sale", "capture", "refund"):
            sums["refunded" if kind == "refund" else "captured"] += amount
    return dict(sums)


def _recorded(funds: Funds) -> dict[str, int]:
    found = {"captured": funds.captured, "refunded": funds.refunded}
    return {name: amount for name, amount in found.items() if amount}


class Shop:
    """Programs that submit payments and operate on them, and the gateway that posts webhooks."""

    def __init__(self, world: PaymentWorld) -> None:
        self._world = world
        self._busy: dict[Any, Process] = {}
        self.is_done = False
        self._numbers = 0

    @property
    def is_busy(self) -> bool:
        return any(not process.is_dead for process in self._busy.values())

    def plan(self) -> None:
        world, chosen = self._world, self._world.options
        acts = (
            (self._pay, chosen.submits),
            (self._operate, chosen.submits * 4),
            (self._deliver, chosen.submits * 4),
            (self._point_elsewhere, world.dice.choice([0, 0, 0, 1, 2])),
            (self._redrive, chosen.submits),
            (self._reconcile, world.dice.choice([0, 1, 3])),
        )
        for act, times in acts:
            for _ in range(times):
                world.later(world.random.random() * chosen.seconds, self.begin, act)
        # Some webhooks come hours later, and some operations, too.
        for _ in range(chosen.submits * 2):
            world.later(
                chosen.seconds + world.random.random() * 30 * HOUR, self.begin, self._deliver
            )
            world.later(
                chosen.seconds + world.random.random() * 30 * HOUR, self.begin, self._operate
            )
        for act in (self._redrive, self._redrive, self._reconcile):
            world.later(chosen.seconds + world.random.random() * 30 * HOUR, self.begin, act)

    def begin(self, act: Any) -> None:
        up = [process for process in self._world.processes if process.is_up]
        if up and not self.is_done:
            process = self._world.random.choice(up)
            task = process.spawn(self._act(process, act))
            self._busy[task] = process
            task.add_done_callback(self._busy.pop)

    async def _act(self, process: Process, act: Any) -> None:
        try:
            await act(process)
        except EXPECTED as error:
            self._world.hit(f"user_{type(error).__name__}")
        except InvalidSignature:
            # Posted by a clock that is minutes off.
            self._world.hit("webhook_refused")

    async def _pay(self, process: Process) -> None:
        world = self._world
        self._numbers += 1
        amount = Money.of_minor(world.random.choice([1, 999, 4_990]), "EUR")
        make = world.random.choice([card.Sale, card.Authorize, card.Authorize])
        payment = make(amount, source=world.random.choice(SOURCES), gateway=CODE)
        request = await process.engine.submit(payment, key=f"order-{self._numbers}")
        world.accepted.add(request.id)
        world.hit(f"submit_{payment.operation}")

    async def _operate(self, process: Process) -> None:
        world = self._world
        if not world.accepted:
            return
        request_id = world.random.choice(sorted(world.accepted))
        request = await process.engine.request(request_id, flow=card.NAME)
        self._numbers += 1
        key = f"key-{self._numbers}"
        part = Money.of_minor(world.random.choice([1, 400, 2_000]), "EUR")
        operations: dict[str, Any] = {
            "capture": lambda: request.capture(part, key=key, final=world.chance(0.5)),
            "capture_all": lambda: request.capture(key=key),
            "refund": lambda: request.refund(part, key=key),
            "void": lambda: request.void(key=key),
            "reverse": lambda: request.reverse(key=key),
        }
        name = world.random.choice([*operations, "capture", "refund"])
        await operations[name]()
        world.hit(f"user_{name}")

    async def _redrive(self, process: Process) -> None:
        """Charge again what has moved no money: a new payment at the gateway."""
        world = self._world
        if world.accepted:
            request_id = world.random.choice(sorted(world.accepted))
            request = await process.engine.request(request_id, flow=card.NAME)
            await request.redrive()
            world.hit("user_redrive")

    async def _reconcile(self, process: Process) -> None:
        """With the ledger of the account that the config names, while operations are open."""
        world = self._world
        until = datetime.fromtimestamp(world.loop.now + HOUR, UTC)
        report = await process.engine.admin.reconcile(CODE, until - timedelta(days=10), until)
        for kind in report.counts:
            world.hit(f"reconciled_{kind}")

    async def _deliver(self, process: Process) -> None:
        """Any event of any account, in any order, perhaps once more."""
        world = self._world
        fake = world.random.choice(list(world.fakes.values()))
        if not fake.events:
            return
        fake.now_ms = world.now_ms
        sent = fake.webhook("https://x", SECRET, world.random.randrange(len(fake.events)))
        headers = {name.lower(): text for name, text in sent.headers.items()}
        [receipt] = await process.pipeline.inbox.take(  # type: ignore[misc]
            "gateway", "default", (CODE,), headers.get, sent.body or b""
        )
        world.hit(f"webhook_{receipt.verdict}")

    async def _point_elsewhere(self, process: Process) -> None:
        await self._world.configure(process, self._world.random.choice([1, 2]))
        self._world.hit("config_changed")


class PaymentWorld(World):
    lost_seconds = 6 * HOUR

    def __init__(self, chosen: Options) -> None:
        super().__init__(chosen)
        self.dice = Random(f"payments {chosen.seed}")
        self.fakes = {f"sk_test_{n}": FakeStripe(f"acct_{n}") for n in (1, 2)}
        delay = self.dice.choice([0, 30, 3_000])
        for fake in self.fakes.values():
            fake.visible_after_seconds = delay
        #: The gateway is out of reach for so long after everything else has healed.
        self.outage_seconds = self.dice.choice([0.0, 0.0, 2 * HOUR, 30 * HOUR, 40 * HOUR])
        self.is_gateway_healed = False
        self.accepted: set[str] = set()
        #: When the world does something by itself.
        self._planned: list[float] = []
        #: Key → when it was sent first, and what was sent under it.
        self._first: dict[str, float] = {}
        self._sent: dict[str, set[tuple[str, bytes]]] = defaultdict(set)
        self._keys: dict[str, set[str]] = defaultdict(set)
        self.provider = Gateways(self)  # type: ignore[assignment]
        self.checks = PaymentChecks(self)
        self.users = Shop(self)  # type: ignore[assignment]

    @property
    def now_ms(self) -> int:
        return int(self.loop.now * 1_000)

    def transport(self, process: Process) -> Transport:
        return GatewayLine(self, process)

    def later(self, seconds: float, act: Any, *args: Any) -> None:
        self._planned.append(self.loop.now + seconds)
        super().later(seconds, act, *args)

    def _jump_to(self) -> float:
        found = super()._jump_to()
        if found == 0.0:
            return found
        planned = [at for at in self._planned if at > self.loop.now]
        if found < 0:
            return min(planned, default=self.loop.now + HOUR)
        return min([found, *planned])

    def _live(self) -> None:
        rates, self.rates = self.rates, CALM
        for number, skew_ms in enumerate(self.options.skews_ms):
            self._start(f"p{number}", skew_ms)
        self._go_on(lambda: all(one.is_up for one in self.processes))
        first = self.processes[0]
        configured = first.spawn(self.configure(first, 1))
        self._go_on(configured.done)
        self.rates = rates
        self.users.plan()
        for act, times in ((self._kill, self.options.kills), (self._stop, self.options.stops)):
            for _ in range(times):
                self.later(self.random.random() * self.options.seconds, act)
        self.later(self.options.seconds, self._heal)
        self.later(self.options.seconds + self.outage_seconds, self._heal_gateway)
        self._come_to_rest(self.options.seconds + 40 * HOUR + REST_SECONDS)
        self.users.is_done = True
        self._rebuild_and_compare()

    def _rebuild_and_compare(self) -> None:
        # An authorization that expires during the comparison would be recorded then.
        states = [view.state for view in self.checks.views().values()]
        ends = [state.expires_at / 1_000 for state in states if state.expires_at is not None]
        near = [at for at in ends if at < self.loop.now + EXPIRES_SOON_SECONDS]
        self._go_on(lambda: self.loop.now > max(near, default=0.0) + EXPIRES_SOON_SECONDS)
        super()._rebuild_and_compare()

    def _fix_credentials(self) -> None:
        """No credential is refused in this world."""

    def _heal_gateway(self) -> None:
        self.is_gateway_healed = True
        self.note(None, "the gateway is healed")

    def _is_at_rest(self) -> bool:
        over = self.options.seconds + 31 * HOUR
        return self.is_gateway_healed and self.trace_seconds > over and super()._is_at_rest()

    @property
    def trace_seconds(self) -> float:
        return self.loop.now - _START

    async def configure(self, process: Process, number: int) -> None:
        fields = {
            "type": "stripe",
            "account": f"acct_{number}",
            "api_key": f"sk_test_{number}",
            "webhook_secret": SECRET,
        }
        await process.engine.admin.put_config(GATEWAY, CODE, fields)

    def fate(self, request: HttpRequest) -> str:
        is_out = self.is_healed and not self.is_gateway_healed
        if is_out:
            return self.hit(self.random.choice(["lost", "refused_500", "hangs"]))
        if not self.chance(self.rates.provider * 0.7):
            return ""
        return self.hit(self.random.choice(FATES))

    def receive(self, request: HttpRequest, fate: str) -> Any:
        """A message arrives at the account of its API key."""
        headers = {name.lower(): text for name, text in request.headers.items()}
        api_key = headers["authorization"].removeprefix("Bearer ")
        fake = self.fakes[api_key]
        if request.method == "POST":
            self._arrived(request, headers["idempotency-key"], api_key)
        match fate:
            case "refused_500":
                fake.next(status=500)
            case "stored_500" | "lost_500":
                fake.next(error=fate)
            case "throttled":
                fake.next(status=429, retry_after=1)
            case "in_use":
                fake.next(status=409)
            case _:
                pass
        reply = fake.receive(request, self.now_ms)
        fake.heal()
        return reply

    def _arrived(self, request: HttpRequest, key: str, api_key: str) -> None:
        first = self._first.setdefault(key, self.loop.now)
        # The skew of clocks and a message that is slow are within the margin of an hour.
        if self.loop.now - first > RESEND_SECONDS + 900:
            self.breaks("nothing is sent after the lifetime of its key", key)
        self._sent[key].add((request.url, request.body or b""))
        if len(self._sent[key]) > 1:
            self.breaks("a resend has the same bytes", key)
        whose = f"{request.url} {_reference(request)}"
        self._keys[whose].add(f"{key} {api_key}")
        if len(self._keys[whose]) > 1 and _reference(request):
            self.breaks("a resend has the same key and account", f"{self._keys[whose]}")

    def effects_of(self, request_id: str) -> list[tuple[str, str, str, int]]:
        """(key, kind, payment, amount) of everything that was done for a request."""
        found = []
        for fake in self.fakes.values():
            for effect in fake.effects:
                if request_id in effect.id:
                    made = effect.data["object"]
                    payment = made.get("payment_intent") or made["id"]
                    asked = effect.data.get("amount_to_capture") or effect.data.get("amount")
                    amount = int(asked or made["amount"])
                    found.append((effect.id, effect.type, payment, amount))
        return found


def _reference(request: HttpRequest) -> str:
    fields = parse_qs((request.body or b"").decode())
    return next((one[0] for name, one in fields.items() if name.startswith("metadata")), "")


_START = 1_800_000_000.0


def payment_options(seed: int) -> Options:
    """As other runs, but with clocks that a data centre has: Stripe's keys know one clock."""
    chosen = options(seed)
    skews = tuple(skew // 100 for skew in chosen.skews_ms)
    return replace(
        chosen,
        skews_ms=skews,
        # A payment has several operations, and each of them its own faults.
        seconds=chosen.seconds * 4,
        queue_lost=False,
        rebuilds=0,
        erases=0,
        ears=False,
        separate_queue=False,
        queue_leases_early=False,
    )


def simulate_payments(seed: int) -> PaymentWorld:
    """Run a seed; raises Failed with everything one needs to replay it."""
    world = PaymentWorld(payment_options(seed))
    try:
        world.run()
    except Broken as broken:
        lines = [f"payment seed {seed}: {broken}", *trace_lines(world, 60)]
        raise Failed("\n".join(lines)) from None
    return world
