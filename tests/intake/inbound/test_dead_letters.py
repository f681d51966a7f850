"""A ticket that fails for good: its dead letter, its counters, and the ways to redrive it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from gesta.api_types.bulk import Bulk
from gesta.domain.event_message import decode_dead_letter, redriven
from gesta.domain.events import Actor
from tests.intake.inbound.slack_posts import KEYWORD, TEAM
from tests.intake.inbound.stage import Stage, eventually


async def failed(stage: Stage, how_many: int = 1, reason: str = "7") -> list[str]:
    stage.api.sandbox.backlog.on("create", error=reason)
    for number in range(how_many):
        await stage.post(stage.event(f"{KEYWORD} task {number}"))
    return [view.state.id for view in await stage.ended("failed", how_many)]


async def test_a_dead_letter_is_shown_in_the_form_of_the_document(slack_to_backlog: Stage) -> None:
    stage = slack_to_backlog
    (request_id,) = await failed(stage)
    key = await stage.api.key("read")
    answer = await stage.api.call("GET", f"/v1/dead-letters/{request_id}", key=key)
    letter = answer.body["message"]
    assert set(letter) == {"originalMessage", "errorInfo", "dlqMetadata"}  # R3-10
    assert set(letter["errorInfo"]) == {  # R3-11
        "errorType",
        "errorMessage",
        "stackTrace",
        "attemptCount",
        "lastAttemptTime",
    }
    assert set(letter["dlqMetadata"]) == {"sentToDlqAt", "originalQueueArn", "receiveCount"}
    assert letter["errorInfo"]["errorType"] == "ProcessingError"
    # R3-15: what an operator needs is in it
    assert "invalid_request" in letter["errorInfo"]["errorMessage"]
    assert "Backlog answered 400" in letter["errorInfo"]["stackTrace"]
    assert letter["originalMessage"]["messageId"] == f"slack-{TEAM}-Ev00000001"
    # S3-12: it can be published again as it is
    again = redriven(decode_dead_letter(json.dumps(letter).encode()), at_ms=0)
    assert (again.retry_count, again.data.metadata.event_id) == (1, "Ev00000001")


async def test_tries_receives_and_redrives_are_counted_separately(here: Stage) -> None:
    (request_id,) = await failed(here)
    request = await here.api.engine.request(request_id)
    for _ in range(2):
        await request.redrive()
        # The view of the failure before may still be there: this waits for the new one.
        await request.outcome()
    letter = await here.api.engine.admin.dead_letter(request_id)
    assert letter.message is not None
    counters = (
        letter.message["errorInfo"]["attemptCount"],
        letter.message["dlqMetadata"]["receiveCount"],
        letter.message["originalMessage"]["retryCount"],
    )
    assert counters == (1, 3, 2)  # S3-14, S3-7


async def test_dead_letters_are_redriven_one_by_one_by_filter_or_all(here: Stage) -> None:
    ids = await failed(here, 5)
    here.api.sandbox.backlog.heal()
    # One.
    await (await here.api.engine.request(ids[0])).redrive()
    await here.ended("completed", 1)
    # A dry run changes nothing.
    asked = Bulk(action="redrive", flow="ticket.backlog", reason="invalid_request", dry_run=True)
    admin = here.api.engine.admin
    (progress,) = [one async for one in admin.bulk(asked, actor=Actor("ada"))]
    assert (progress.matched, progress.done) == (4, 0)
    assert len(await here.of("ticket.backlog", "failed")) == 4
    # By a filter that fits none, then all, with a rate limit, progress and an audit entry.
    other = Bulk(action="redrive", flow="ticket.backlog", reason="access_denied")
    assert [one async for one in admin.bulk(other, actor=Actor("ada"))][-1].matched == 0
    every = Bulk(action="redrive", flow="ticket.backlog", rate=20)
    steps = [one async for one in admin.bulk(every, actor=Actor("ada"))]
    assert (steps[-1].matched, steps[-1].done, steps[-1].finished) == (4, 4, True)
    assert len(steps) > 2
    await here.ended("completed", 5)
    assert len(here.issues) == 5
    audit = await here.api.call("GET", "/v1/audit", key=await here.api.key("admin"))
    assert "redrive" in json.dumps(audit.body)


async def test_dead_letters_are_kept_for_14_days(here: Stage) -> None:
    (request_id,) = await failed(here)
    letter = await here.api.engine.admin.dead_letter(request_id)
    kept = datetime.fromisoformat(letter.failure.kept_until)
    assert kept - datetime.fromisoformat(letter.failure.at) == timedelta(days=14)  # R3-17, X-9


async def test_an_api_key_in_an_error_never_reaches_the_dead_letter(here: Stage) -> None:
    await here.put(
        "backlog.space", "default", host="a.backlog.com", api_key="sEcReT99", per_second=99
    )
    (request_id,) = await failed(here)
    letter = await here.api.engine.admin.dead_letter(request_id)
    assert "sEcReT99" not in json.dumps(letter.message)  # S3-13, R3-15


async def test_a_dead_letter_is_answered_in_the_thread(here: Stage) -> None:
    await failed(here)

    async def replies() -> list[tuple[str, str | None]]:
        return here.replies

    (reply,) = await eventually(replies, lambda found: len(found) == 1)
    assert reply[1] == "1700000000.000001"  # S3-28
    assert "invalid_request" not in reply[0]
