"""A transaction and a gateway in one process without I/O: what a seed makes them do, and what must
hold after each step.

The gateway is a fake: it keeps the truth, forgets keys after a day and shows effects late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

import msgspec

from gesta.domain import events as e
from gesta.domain.commands import (
    Cancel,
    Command,
    CommandRefused,
    Create,
    Expire,
    Lose,
    Reconciled,
    RecordOutcome,
    Redrive,
    Resolve,
    Rules,
    Start,
)
from gesta.domain.ids import idempotency_key
from gesta.domain.money import Money
from gesta.domain.outcome import Done, Movement, Outcome, Rejected, Retry, Unknown
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.state import State
from gesta.domain.transaction import commands as c
from gesta.domain.transaction.funds import Funds, funds_of, opening_facts
from gesta.domain.transaction.lifecycle import TRANSACTION

HOUR = 3_600_000
KEY_MS = 24 * HOUR
VISIBLE_MS = 60_000
HELD_MS = 100 * HOUR
RULES = Rules(
    RetryPolicy(attempts=8),
    "reconcile",
    ask_after_seconds=5.0,
    asking=RetryPolicy(
        attempts=11, schedule_seconds=(30.0, 120.0, 600.0, 3600.0, 21_600.0, *[86_400.0] * 5)
    ),
)


class Broken(AssertionError):
    """A promise of the lifecycle does not hold."""


@dataclass
class Gateway:
    """Executes a key once while it remembers it, and then again: as real gateways do."""

    effects: list[tuple[str, int, int]] = field(default_factory=list)
    remembered: dict[str, int] = field(default_factory=dict)
    #: Webhooks, of declined calls too: (operation, intent, id of the payment).
    posted: list[tuple[str, int, str]] = field(default_factory=list)

    def execute(self, key: str, amount: int, now: int) -> None:
        if now - self.remembered.get(key, -KEY_MS) < KEY_MS:
            return
        self.remembered[key] = now
        self.effects.append((key, amount, now))

    def find(self, key: str, now: int) -> int | None:
        return next(
            (amount for k, amount, at in self.effects if k == key and now - at >= VISIBLE_MS), None
        )

    def moved(self, key: str) -> int | None:
        return next((amount for k, amount, _ in self.effects if k == key), None)

    def has(self, key: str) -> bool:
        return self.moved(key) is not None


class Bank:
    """One transaction. `step` does something random; `check` raises Broken."""

    def __init__(self, seed: int) -> None:
        self.random, self.now = Random(seed), 1_000_000
        self.gateway = Gateway()
        first = self.random.choice(["sale", "authorization"])
        self.requested = self.random.randint(1, 10_000)
        self.state: State = self._created(first)
        self.history: list[Command] = []
        #: Calls that are under way: (attempt, intent, operation, key, amount).
        self.keys_of: dict[tuple[str, int], set[str]] = {}
        self.log: list[str] = []
        self.resolved_by_hand = 0
        #: When the gateway releases what it holds.
        self.ends_at = 0

    def _created(self, first: str) -> State:
        facts = opening_facts(Money.of_minor(self.requested, "EUR"), first, "g")
        command = Create("r", "payment.card", b"{}", self.now, operation=first, facts=facts)
        (event,) = TRANSACTION.decide(None, command, RULES)
        return TRANSACTION.evolve(None, event, self._meta())

    def _meta(self) -> e.Meta:
        return e.Meta("t", "payment.card", "r", self.now, "c", "c")

    @property
    def funds(self) -> Funds:
        return funds_of(self.state)

    def tell(self, command: Command) -> list[e.Event]:
        self.history.append(command)
        try:
            events = TRANSACTION.decide(self.state, command, RULES)
        except CommandRefused:
            return []
        for event in events:
            # What is stored must be readable, and give the same state.
            again = msgspec.json.decode(msgspec.json.encode(event), type=type(event))
            self.state = TRANSACTION.evolve(self.state, again, self._meta())
            self.log.append(f"{self.now} {type(event).__name__}")
        if not events:
            return []
        self.check()
        return events

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.30:
            self.now += self.random.choice([1, 10_000, 60_000, HOUR, 6 * HOUR, 26 * HOUR])
        elif dice < 0.75:
            self.work()
        elif dice < 0.92:
            self.ask()
        elif dice < 0.97 and self.history:
            # A duplicate job, a late report: any command may come again.
            self.tell(self.random.choice(self.history))
        elif dice < 0.985:
            self.webhook()
        else:
            self.reconcile()

    def webhook(self) -> None:
        """Any webhook of the gateway, in any order, perhaps once more."""
        if not self.gateway.posted:
            return
        number = self.random.randrange(len(self.gateway.posted))
        operation, intent, payment_id = self.gateway.posted[number]
        self.tell(
            c.NoteWebhook(
                f"evt_{number}",
                "charge.updated",
                self.now,
                payment_id,
                operation=operation,
                intent=intent,
            )
        )

    def reconcile(self) -> None:
        """Every row of the gateway's ledger; a second run adds nothing."""
        for is_again in (False, True):
            for number, (key, amount, _) in enumerate(self.gateway.effects):
                _, _, operation, intent = key.split(":")
                if operation in ("authorization", "void"):
                    continue
                name = f"{operation}:{intent}"
                row = c.Correct(
                    f"txn_{number}:missing_local",
                    "missing_local",
                    "executed",
                    "a row of the ledger",
                    operation,
                    int(intent),
                    amount,
                    self.payment_id,
                )
                if self.tell(row) and is_again:
                    raise Broken(f"a second reconciliation adds something about {name}")
                if name not in self.funds.moved and row.row not in self.funds.rows:
                    raise Broken(f"the ledger shows {name}, and it is not on record")

    def ask(self) -> None:
        amount = self.random.choice([None, self.random.randint(-1, self.requested + 5)])
        key = f"k{self.random.randint(1, 6)}"
        kind = self.random.choice([c.Capture, c.Refund, c.Void, c.Reverse, Cancel, Redrive])
        before = self.state
        if kind is Cancel:
            self.tell(Cancel())
        elif kind is Redrive:
            self.tell(Redrive(self.now, again=self.random.random() < 0.5))
        elif kind in (c.Void, c.Reverse):
            self.tell(kind(self.now, None, "", key, key))
        elif kind is c.Capture:
            is_final = self.random.random() < 0.5
            self.tell(c.Capture(self.now, amount, "EUR", key, key, is_final=is_final))
        else:
            self.tell(kind(self.now, amount, "EUR", key, key))
        if (
            before.phase == "unknown"
            and self.state.phase == "open"
            and before.intent < self.state.intent
        ):
            raise Broken("a new key while an outcome is unknown")
        if before.phase == "unknown" and self.state.operation != before.operation:
            raise Broken("money is moved while an outcome is unknown")

    def work(self) -> None:
        state = self.state
        if state.wants is None or (state.due_at or 0) > self.now:
            if state.waits_for_a_person:
                self.person()
            elif state.phase == "idle":
                self.tell(Expire(self.now))
            return
        if state.wants == "reconcile":
            self.look_up()
        elif state.started is not None:
            self.tell(Lose(self.now))
        elif not self.tell(Expire(self.now)):
            self.call()

    def call(self) -> None:
        state = self.state
        key = idempotency_key("t", "r", state.operation, state.intent)
        facts = {
            "call": b"c",
            "key_seconds": (KEY_MS - HOUR) / 1000,
            "can_look_up": True,
            "visible_seconds": VISIBLE_MS / 1000,
            "multiple_captures": True,
        }
        if not self.tell(Start(key, facts)):
            return
        state, amount = self.state, self.funds.pending
        self.keys_of.setdefault((state.operation, state.intent), set()).add(key)
        fate = self.random.choice(
            """done done lost lost never declined busy crash crash_done less""".split()
        )
        if fate == "less" and (state.operation in ("void", "reversal") or self.gateway.has(key)):
            fate = "lost"
        payment_id = self._payment_of(state)
        self.gateway.posted.append((state.operation, state.intent, payment_id))
        if state.operation in ("capture", "void") and self.now >= self.ends_at:
            # The gateway has released what was held, and refuses.
            fate = "declined"
        if fate in ("done", "lost", "crash_done", "less"):
            if fate == "less":
                # The bank granted only a part of it.
                amount = self.random.randint(1, amount)
            if state.operation == "authorization":
                self.ends_at = self.now + HELD_MS
            self.gateway.execute(key, amount, self.now)
        if fate.startswith("crash"):
            return
        outcome: Outcome
        moved = self.gateway.moved(key)
        if moved not in (None, self.funds.pending) and fate in ("done", "declined", "less"):
            outcome = Unknown("conflicted", manual=True)
        elif fate in ("done", "less"):
            outcome = Done(self.payment_id, movement=self._movement(amount))
        elif fate == "declined" and self.gateway.has(key):
            # It remembers the success and answers with it.
            outcome = Done(self.payment_id, movement=self._movement(amount))
        elif fate == "declined":
            outcome = Rejected("declined")
        elif fate == "busy":
            outcome = Retry("busy")
        else:
            outcome = Unknown("timeout")
        chance = self.random.random()
        self.tell(
            RecordOutcome(
                outcome,
                state.attempts + 1,
                self.now,
                chance,
                state.intent,
                operation=state.operation,
            )
        )

    def _movement(self, amount: int) -> Movement:
        is_held = self.state.operation == "authorization"
        return Movement(amount, capture_before=self.ends_at if is_held else None)

    @property
    def payment_id(self) -> str:
        """What the gateway calls the newest payment of this transaction."""
        return f"pi_{self.funds.intents[self.funds.first]}"

    def _payment_of(self, state: State) -> str:
        """The payment that a call makes, or is about."""
        if state.operation == self.funds.first:
            return self.payment_id
        if self.funds.payment_id != self.payment_id:
            raise Broken(f"a {state.operation} is about another payment, {self.funds.payment_id}")
        return self.payment_id

    def look_up(self) -> None:
        state = self.state
        key = idempotency_key("t", "r", state.operation, state.intent)
        amount = self.gateway.find(key, self.now)
        outcome: Outcome = Retry("not_found")
        if amount not in (None, self.funds.pending):
            outcome = Unknown("conflicted", manual=True)
        elif amount is not None:
            outcome = Done(self.payment_id, movement=self._movement(amount))
        elif self.random.random() < 0.4:
            outcome = Unknown("gateway_down")
        chance = self.random.random()
        self.tell(Reconciled(outcome, self.now, chance, state.operation, state.intent))

    def person(self) -> None:
        """Looks at the gateway's records, and says what they say."""
        state = self.state
        self.now += HOUR
        key = idempotency_key("t", "r", state.operation, state.intent)
        amount = self.gateway.moved(key)
        result: Literal["executed", "not_executed"] = (
            "not_executed" if amount is None else "executed"
        )
        self.resolved_by_hand += 1
        said = "seen in the dashboard"
        self.tell(Resolve(result, "ada", said, self.payment_id, self.now, amount, "EUR"))
        # No client repeats it, because another outcome may be unknown by then.
        self.history = [one for one in self.history if not isinstance(one, Resolve)]

    def check(self) -> None:
        funds = self.funds
        seen = [key for key, _, _ in self.gateway.effects]
        if len(seen) != len(set(seen)):
            raise Broken(f"a double effect under {max(set(seen), key=seen.count)}")
        if not 0 <= funds.captured <= funds.authorized <= self.requested:
            raise Broken("more captured than authorized")
        if not 0 <= funds.refunded <= funds.captured:
            raise Broken("more refunded than captured")
        if funds.capturable < 0 or funds.released < 0:
            raise Broken("more released than authorized")
        if sum(funds.balances.values()) != 0:
            raise Broken("the ledger does not sum to zero")
        if funds.balances.get("payer_held", 0) != funds.capturable:
            raise Broken("the ledger holds another amount than is authorized")
        if funds.balances.get("gateway", 0) != funds.refundable:
            raise Broken("the ledger has another amount at the gateway than was captured")
        if any(len(keys) > 1 for keys in self.keys_of.values()):
            raise Broken("two keys for one intent")

    def finish(self) -> None:
        """Let everything that is open come to its end."""
        for _ in range(400):
            if self.state.phase not in ("open", "unknown"):
                break
            self.now = max(self.now + 1_000, self.state.due_at or 0)
            self.work()
        else:
            raise Broken(f"it does not end: {self.state.status}")
        for key, amount, _ in self.gateway.effects:
            _, _, operation, intent = key.split(":")
            if self.funds.moved.get(f"{operation}:{intent}") != amount:
                raise Broken(f"the gateway executed {key}, and it is not on record")
        for name in self.funds.moved:
            if not self.gateway.has(f"t:r:{name}"):
                raise Broken(f"{name} is on record, and the gateway did not do it")


def play(seed: int, steps: int = 60) -> Bank:
    """A whole life from one seed. Raises Broken with the log of what happened."""
    bank = Bank(seed)
    try:
        for _ in range(steps):
            bank.step()
        bank.finish()
    except Broken as broken:
        log = "\n".join(bank.log[-40:])
        raise Broken(f"seed {seed}: {broken}\n{log}") from None
    return bank
