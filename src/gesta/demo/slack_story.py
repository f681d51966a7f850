"""The scene of the demo with an event from outside: a Slack message becomes an issue in Backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gesta.demo.orders import SIGNING_SECRET, Order
from gesta.flows import slack, ticket
from gesta.intake.inbound.inbox import Receipt
from gesta.sandbox.slack import message_event, signed

if TYPE_CHECKING:
    from gesta.demo.story import Shop, Story

KEYWORD = "Backlog登録希望"


async def tell(story: Story, shop: Shop) -> None:
    """An event that becomes an issue, a duplicate that does not, and a dead letter, redriven."""
    stage = story.stage
    if slack.NAME not in stage.engine.flows:
        return
    stage.screen.act("A Slack message becomes an issue")
    backlog, thread = stage.doors[ticket.NAME], stage.doors[slack.NAME].fake
    before = len(thread.effects)
    event = _event("C-1", f"{KEYWORD} Order C-1 has no label", 1)
    first = await _posted(stage, event)
    order = await _order(stage, shop, "C-1", "Slack event, posted twice", first)
    stage.screen.say(
        f"A person writes “{KEYWORD} Order C-1 has no label”. Slack posts the event, signed. It is"
        f" {first.verdict}, and on disk before the answer."
    )
    again = await _posted(stage, event)
    story.expect("a repeated event creates nothing", is_so=again.verdict == "duplicate")
    stage.screen.say(f"Slack posts the same event again: {again.verdict}.")
    state = await shop.state(order, lambda state: state.status == "completed")
    stage.screen.say(f"Backlog has the issue {state.provider_id}.")
    backlog.fake.on(lambda call: "C-2" in call.text, error="6", times=1)
    second = await _posted(stage, _event("C-2", f"{KEYWORD} Order C-2 is broken", 2))
    order = await _order(stage, shop, "C-2", "Slack event, dead letter, redriven", second)
    state = await shop.state(order, lambda state: state.status == "failed")
    letter = await stage.engine.admin.dead_letter(order.request.id)
    assert letter.message is not None
    tries = letter.message["errorInfo"]["attemptCount"]
    stage.screen.say(
        f"For C-2 Backlog does not know the project: {state.status} ({state.reason}), a dead letter"
        f" after {tries} try. The thread gets one short reply."
    )
    await order.request.redrive()
    await shop.state(order, lambda state: state.status == "completed")
    await shop.until(lambda: len(thread.effects) - before == 3, "three replies in the threads")
    stage.screen.say(
        "An operator redrives it, and Backlog has the second issue. Each thread has its reply."
    )


def _event(order: str, text: str, number: int) -> dict[str, Any]:
    return message_event(text, event_id=f"Ev{order[2:]}DEMO", ts=f"1700000000.{number:06d}")


async def _posted(stage: Any, event: dict[str, Any]) -> Receipt:
    posting = signed(event, SIGNING_SECRET, stage.runtime.now_ms() // 1000)
    headers = {name.lower(): value for name, value in posting.headers.items()}
    inbox = stage.engine.pipeline.inbox
    (receipt,) = await inbox.take("slack", "default", (), headers.get, posting.body)
    assert isinstance(receipt, Receipt)
    return receipt


async def _order(stage: Any, shop: Shop, number: str, shows: str, receipt: Receipt) -> Order:
    assert receipt.request is not None
    request = await stage.engine.request(receipt.request.request_id)
    order = Order(number, shows, request, stage.doors[ticket.NAME])
    shop.others.append(order)
    return order
