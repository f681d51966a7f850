"""A Slack team that posts events, and a flow that gets them as they passed the queue."""

from __future__ import annotations

from gesta import Done, Payload
from gesta import flow as declare
from gesta.domain.event_message import EventMessage
from gesta.intake.inbound.inbox import Inbox, Receipt
from gesta.sandbox.slack import message_event, signed

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM, CHANNEL = "T123ABC", "C123ABC"
#: The literal of the document.
KEYWORD = "Backlog登録希望"


class Issue(Payload, frozen=True):
    event: EventMessage


@declare("test.issue", on_unknown="manual")
async def issue(payload: Issue, attempt: object) -> Done:
    return Done()


async def post(inbox: Inbox, text: str, number: int, now_ms: int) -> list[Receipt]:
    event = message_event(
        text,
        event_id=f"Ev{number:06d}",
        ts=f"1700000000.{number:06d}",
        team=TEAM,
        channel=CHANNEL,
        user="U123ABC",
    )
    posting = signed(event, SECRET, now_ms // 1000)
    headers = {name.lower(): value for name, value in posting.headers.items()}
    found = await inbox.take("slack", "default", (), headers.get, posting.body)
    assert isinstance(found, list)
    return found
