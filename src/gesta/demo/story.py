"""The script: a shop notifies its warehouse of paid orders, and every failure happens once."""

from collections.abc import Awaitable, Callable, Sequence

from gesta.admin.wording import describe, event_name
from gesta.demo import slack_story
from gesta.demo.card_story import CardStory
from gesta.demo.orders import (
    NEW_TOKEN,
    OLD_TOKEN,
    Order,
    OrderResult,
    payload_of,
    put_workspace,
    tally,
)
from gesta.demo.stage import ACCOUNTING, WAREHOUSE, Stage
from gesta.demo.worker_process import Stuck, until
from gesta.domain.state import State
from gesta.engine.request import Request
from gesta.errors import Conflict
from gesta.flows import card, email, slack, webhook
from gesta.flows.sms.message import NAME as SMS
from gesta.sandbox import Fault


class Shop:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.orders: list[Order] = []
        self.others: list[Order] = []
        self.payments: list[Order] = []

    async def pay(
        self, shows: str, mishap: Fault | None = None, *, endpoint: str = WAREHOUSE
    ) -> Order:
        """Notify of a new order; the first message about it meets the fault."""
        number = f"A-{len(self.orders) + 1}"
        if mishap is not None:
            self.stage.receiver.mishap(number, mishap)
        order = Order(number, shows, await self.ask(number, endpoint=endpoint), self.stage.receiver)
        self.orders.append(order)
        return order

    async def tell(self, flow: str, shows: str) -> Order:
        """Notify of a new order of the other shop, through another channel."""
        number = f"B-{len(self.others) + 1}"
        request = await self.stage.engine.submit(payload_of(flow, number), key=f"order-{number}")
        order = Order(number, shows, request, self.stage.doors[flow])
        self.others.append(order)
        return order

    async def ask(self, number: str, *, total: int = 42, endpoint: str = WAREHOUSE) -> Request:
        message = webhook.Message("order.paid", {"order": number, "total": total}, endpoint)
        return await self.stage.engine.submit(message, key=f"order-{number}")

    async def until(self, holds: Callable[[], bool | Awaitable[bool]], awaited: str) -> None:
        """Wait until it holds. Raises Stuck after a time limit, or when the worker has ended."""

        def look() -> bool | Awaitable[bool]:
            if self.stage.worker.has_ended:
                raise Stuck(f"{awaited}: the worker ended by itself")
            return holds()

        await until(self.stage.runtime, look, awaited)

    async def state(self, order: Order, holds: Callable[[State], bool]) -> State:
        """The state of the order once it satisfies the condition."""
        seen: list[State] = []

        async def look() -> bool:
            seen.append((await order.request.view()).state)
            return holds(seen[-1])

        await self.until(look, f"order {order.number} to move on")
        return seen[-1]

    async def sent(self, order: Order) -> State:
        return await self.state(order, lambda state: state.status == "sent")


#: Longer than the channel's own wait before a second attempt (5 s plus up to 10 %), to show that
#: Retry-After decided.
RETRY_AFTER_SECONDS = 6
#: How long the call takes in which the worker is killed.
SLOW_SECONDS = 10.0


class Story:
    def __init__(self, stage: Stage) -> None:
        self.stage, self._say, self._act = stage, stage.screen.say, stage.screen.act
        self._shop = Shop(stage)
        self._broken: list[str] = []

    async def tell(self) -> None:
        await self._plain_sailing()
        await self._same_key_twice()
        busy = await self._too_many_requests()
        lost = await self._lost_answer()
        payments = CardStory(self, self._shop) if card.NAME in self.stage.engine.flows else None
        if payments is not None:
            await payments.begin()
        else:
            self.stage.screen.aside(
                "A card payment is not shown: pip install 'gesta[stripe]' adds its library."
            )
        await self._dead_letter()
        await self._other_channels()
        await slack_story.tell(self, self._shop)
        await self._revoked_token()
        if payments is not None:
            await payments.end()
        killed, late = await self._killed_worker()
        await self._endings(busy, lost, killed, late)
        await self._record(killed)

    async def count(self) -> OrderResult:
        """The status of every request, and the counts of the receiver."""
        shop = self._shop
        tallies = [await tally(one) for one in (*shop.orders, *shop.others, *shop.payments)]
        return OrderResult(tallies, self._broken, self.stage.screen.seconds)

    async def _plain_sailing(self) -> None:
        self._act("Three requests that succeed")
        orders = [await self._shop.pay("succeeds at once") for _ in range(3)]
        self._say(
            "Orders A-1, A-2 and A-3 are paid: three requests, each on disk before its submit"
            " returned."
        )
        for order in orders:
            await self._shop.sent(order)
        self._say("All three are sent.")

    async def _same_key_twice(self) -> None:
        self._act("The same key twice")
        order = await self._shop.pay("submitted twice, one key")
        again = await self._shop.ask(order.number)
        self.expect("the same key leads to the same request", is_so=again.id == order.request.id)
        self._say(
            f"{order.number} is submitted twice with the same key. The second leads to the same"
            f" request: {again.verdict}."
        )
        conflict: Conflict | None = None
        try:
            await self._shop.ask(order.number, total=999)
        except Conflict as refused:
            conflict = refused
        self.expect("other content under a used key is refused", is_so=conflict is not None)
        self._say(f"A third time, with another total under that key, it is refused: {conflict}.")
        await self._shop.sent(order)
        self._say(f"{order.number} is sent.")

    async def _too_many_requests(self) -> Order:
        self._act("429 Too Many Requests")
        order = await self._shop.pay(
            "429, waits for Retry-After", Fault(status=429, retry_after=RETRY_AFTER_SECONDS)
        )
        state = await self._shop.state(order, lambda state: state.attempts == 1)
        self._say(
            f"{order.number} meets a busy receiver: 429 with Retry-After: {RETRY_AFTER_SECONDS}."
            f" The next attempt is planned in {_wait_seconds(state):.1f} s. Meanwhile the story"
            " goes on."
        )
        return order

    async def _lost_answer(self) -> Order:
        self._act("An answer that is lost")
        order = await self._shop.pay("answer lost, sent again", Fault(drop=True))
        state = await self._shop.state(order, lambda state: state.status == "unknown")
        self._say(
            f"{order.number} arrives and has its effect, but the connection breaks before the"
            f" answer comes. Its outcome is {state.status}"
            f" ({state.reason}). It is sent again in {_wait_seconds(state):.1f} s, under the same"
            " key."
        )
        return order

    async def _dead_letter(self) -> None:
        self._act("A dead letter, redriven")
        admin = self.stage.engine.admin
        order = await self._shop.pay("dead letter, redriven", endpoint=ACCOUNTING)
        state = await self._shop.state(order, lambda state: state.status == "failed")
        letter = await admin.dead_letter(order.request.id)
        self._say(
            f"{order.number} goes to accounting, whose address answers 410 Gone. Trying again"
            f" cannot help: {state.status} ({letter.failure.reason}), and it waits among the"
            " dead letters."
        )
        await admin.put_config(webhook.ENDPOINT, ACCOUNTING, {"url": self.stage.address})
        await order.request.redrive()
        self._say("An operator stores the new address and redrives it.")
        await self._shop.sent(order)
        self._say(f"{order.number} is sent.")

    async def _other_channels(self) -> None:
        self._act("Slack, e-mail, SMS")
        shows = {
            slack.NAME: "Slack, by code and template",
            email.NAME: "e-mail, by code and template",
            SMS: "SMS, by code and template",
        }
        there = [name for name in shows if name in self.stage.engine.flows]
        if len(there) < len(shows):
            self.stage.screen.aside(
                "Not all are shown: pip install 'gesta[slack,email,sms]' adds their libraries."
            )
        if not there:
            return
        orders = [await self._shop.tell(name, shows[name]) for name in there]
        self._say(
            f"{_listed(orders)}: the same pipeline. Destination, account and text are stored by"
            " code."
        )
        for order in orders:
            await self._shop.sent(order)
        self._say(f"{_listed(orders)} sent, each in the words of its template.")

    async def _revoked_token(self) -> None:
        if slack.NAME not in self.stage.engine.flows:
            return
        self._act("A token is revoked")
        admin, held = self.stage.engine.admin, 2
        self.stage.doors[slack.NAME].fake.on(OLD_TOKEN, error="token_revoked")
        orders = [
            await self._shop.tell(slack.NAME, "token revoked, held, renewed") for _ in range(held)
        ]

        async def are_held() -> bool:
            return sum(one.count for one in await admin.held()) == held

        await self._shop.until(are_held, "both to be held")
        (pause,) = await admin.paused("default")
        self._say(
            f"Slack refuses the token of {_listed(orders)}. No dead letters: both are held, no"
            f" attempt is spent ({pause.reason})."
        )
        await put_workspace(self.stage.engine, self.stage.url, NEW_TOKEN)
        for order in orders:
            await self._shop.sent(order)
        self._say(f"An operator stores the new token, and they are sent: {_listed(orders)}.")

    async def _killed_worker(self) -> tuple[Order, Order]:
        self._act("The worker is killed in the middle of a call")
        worker, receiver = self.stage.worker, self.stage.receiver
        killed = await self._shop.pay(
            "worker killed during the call", Fault(slow_seconds=SLOW_SECONDS)
        )
        await self._shop.until(
            lambda: bool(receiver.arrivals_of(killed.number)), "the call to arrive"
        )
        await worker.kill()
        self._say(
            f"{killed.number} has arrived and the answer is on its way: kill -9 {worker.pid}. The"
            " worker is gone."
        )
        late = await self._shop.pay("accepted while no worker ran")
        self._say(f"{late.number} is submitted while no worker runs. It is accepted and on disk.")
        await worker.start()
        self._say(
            f"A new worker starts, process {worker.pid}. Only the store tells it what the"
            " old one was doing."
        )
        return killed, late

    async def _endings(self, busy: Order, lost: Order, killed: Order, late: Order) -> None:
        self._act("Everything comes to its end by itself")
        self._say(
            f"Still open: {busy.number} until its Retry-After is over, {lost.number} until its"
            f" second attempt, {killed.number} and {late.number} until the dead worker's leases"
            " end."
        )
        waiting = {
            late: ".",
            killed: (
                ": when the dead worker's lease had ended, the new one sent it again, under the"
                " same key."
            ),
            lost: ": by the key the receiver knows what it has done already.",
            busy: ": it waited for Retry-After.",
        }

        async def look() -> bool:
            for order in list(waiting):
                state = (await order.request.view()).state
                if state.is_terminal:
                    ending = waiting.pop(order)
                    self._say(
                        f"{order.number} is"
                        f" {state.status}{ending if state.status == 'sent' else '.'}"
                    )
            return not waiting

        await self._shop.until(look, "every request to end")
        arrivals = self.stage.receiver.arrivals_of(busy.number)
        waited_ms = arrivals[-1] - arrivals[0]
        self.expect(
            "no attempt comes before Retry-After is over",
            is_so=waited_ms >= RETRY_AFTER_SECONDS * 1000,
        )

    async def _record(self, order: Order) -> None:
        self._act(f"What is on record about {order.number}")
        history = await self.stage.engine.history(order.request.id)
        created_at = history[0][2].occurred_at
        for type_name, event, meta in history:
            self.stage.screen.fact(
                (meta.occurred_at - created_at) / 1000,
                event_name(type_name, order.request.flow),
                describe(event, meta.occurred_at),
            )

    def expect(self, promise: str, *, is_so: bool) -> None:
        if not is_so:
            self._broken.append(promise)


def _listed(orders: Sequence[Order]) -> str:
    return (
        " and ".join((", ".join(order.number for order in orders[:-1]), orders[-1].number))
        if len(orders) > 1
        else orders[0].number
    )


def _wait_seconds(state: State) -> float:
    return ((state.due_at or state.updated_at) - state.updated_at) / 1000
