"""The boundary queue on SQS: moto's server, a fake of it, and another program on the same queue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gesta.errors import StoreError
from gesta.intake.inbound.boundary_dead_letters import Choice
from gesta.stores.sqs.client import Sqs
from gesta.testing.moto_server import MotoServer
from tests.cli.running import Cli
from tests.domain.event_document import ATTRIBUTES, DOCUMENT
from tests.intake.inbound.slack_posts import KEYWORD
from tests.stores.sqs.boundary_stage import boundary_stage


async def test_a_published_event_has_the_body_and_the_attributes_of_the_document(
    moto, prefix, tmp_path
):
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        (receipt,) = await stage.post(f"{KEYWORD} タスクの説明")
        assert receipt.verdict == "accepted"
        (message,) = await stage.receive()
    body = message["body"]
    assert body["messageId"] == "slack-T123ABC-Ev000001"
    assert list(body) == ["messageId", "timestamp", "source", "eventType", "data", "retryCount"]
    assert body["retryCount"] == 0  # R3-1
    assert (body["source"], body["eventType"]) == ("slack-event-ingest", "slack.message")  # R3-2
    assert body["data"]["slackEvent"] == {
        "type": "message",
        "channel": "C123ABC",
        "user": "U123ABC",
        "text": "Backlog登録希望 タスクの説明",
        "ts": "1700000000.000001",
        "team": "T123ABC",
    }  # R3-3
    metadata = body["data"]["metadata"]
    assert metadata["eventId"] == "Ev000001"
    assert {"receivedAt", "apiGatewayRequestId", "signature", "signatureTimestamp"} <= set(
        metadata
    )  # R3-4
    assert message["attributes"] == ATTRIBUTES  # R3-5


async def test_the_queues_are_created_as_the_document_says(moto, prefix, tmp_path):
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        ours = await stage.sqs.attributes(await stage.url(), ["All"])
        dead = await stage.sqs.attributes(await stage.url("-dlq"), ["All"])
    assert ours["VisibilityTimeout"] == "60"  # R3-8
    policy = msgspec.json.decode(ours["RedrivePolicy"])
    assert int(policy["maxReceiveCount"]) == 3  # R3-9
    assert policy["deadLetterTargetArn"] == dead["QueueArn"]
    assert dead["MessageRetentionPeriod"] == "1209600"  # R3-17
    assert int(ours["MessageRetentionPeriod"]) < 1209600
    assert "FifoQueue" not in ours


async def test_messages_of_another_program_lead_to_one_request_for_each_event(
    moto, prefix, tmp_path
):
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        later = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
        later["messageId"], later["data"]["metadata"]["eventId"] = "another", "Ev9"
        later["data"]["slackEvent"]["ts"] = "1234567891.000000"
        for body in (later, DOCUMENT, DOCUMENT, later):
            await stage.send(body)  # R3-7
        await stage.until(stage.is_empty)
        views = await stage.until(stage.issues)
        assert len(views) == 2  # R3-6
        assert not await stage.dead()


async def test_slack_event_goes_through_the_queue_to_a_request(moto, prefix, tmp_path):
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        await stage.post(f"{KEYWORD} one")
        await stage.post(f"{KEYWORD} one")
        await stage.until(stage.issues)
        await stage.until(stage.is_empty)  # R3-18
        assert len(await stage.issues()) == 1


async def test_a_text_above_64_kb_travels_by_reference(moto, prefix, tmp_path):
    text = "あ" * 30_000
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        await stage.post(f"{KEYWORD} {text}")
        (message,) = await stage.receive()
        assert len(msgspec.json.encode(message["body"])) < 64 * 1024  # R3-13
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        (view,) = await stage.until(stage.issues)
        assert text in view.payload.decode()
        await stage.until(stage.is_empty)
        # A copy that SQS delivers late is no error: the body was processed and forgotten.
        await stage.send(msgspec.json.encode(message["body"]).decode())
        await stage.until(stage.is_empty)
        assert not await stage.dead()


async def test_many_events_are_sent_ten_at_a_time(moto, prefix, tmp_path, monkeypatch):
    sizes: list[int] = []
    call = Sqs.call

    async def counted(self: Sqs, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "send_message_batch":
            sizes.append(len(arguments["Entries"]))
        return await call(self, operation, **arguments)

    monkeypatch.setattr(Sqs, "call", counted)
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        await asyncio.gather(*(stage.post(f"{KEYWORD} {n}", n) for n in range(1, 26)))
        counts = await stage.counts()
    assert counts.waiting == 25
    assert max(sizes) == 10  # R3-14
    assert len(sizes) <= 5


async def test_a_message_that_fails_is_processed_three_times_and_is_then_a_dead_letter(
    moto, prefix, tmp_path, monkeypatch
):
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        calls = 0

        async def fail(*_: object) -> None:
            nonlocal calls
            calls += 1
            raise RuntimeError("Failed to create Backlog issue ?apiKey=topsecret")

        monkeypatch.setattr(stage.pipeline.inbox, "process", fail)
        await stage.send()
        await stage.until(stage.dead)
        await stage.until(stage.is_empty)
        assert calls == 3  # R3-9
        (letter,) = await stage.receive("-dlq")
        body = letter["body"]
        assert set(body) == {"originalMessage", "errorInfo", "dlqMetadata"}  # R3-10
        assert body["originalMessage"] == DOCUMENT
        error = body["errorInfo"]
        assert error["errorType"] == "ProcessingError"
        assert error["attemptCount"] == 3
        assert set(error) == {
            "errorType",
            "errorMessage",
            "stackTrace",
            "attemptCount",
            "lastAttemptTime",
        }  # R3-11
        assert "Failed to create Backlog issue" in error["errorMessage"]
        assert "in fail" in error["stackTrace"]  # R3-15
        assert "topsecret" not in str(body)
        assert set(body["dlqMetadata"]) == {"sentToDlqAt", "originalQueueArn", "receiveCount"}
        assert body["dlqMetadata"]["receiveCount"] == 3  # R3-12
        assert body["dlqMetadata"]["originalQueueArn"].endswith(f":{prefix}")
        monkeypatch.undo()
        await redrive_all(stage)


async def redrive_all(stage) -> None:
    """Then each leads to its request, and no letter is left."""
    letters = stage.letters
    before = await letters.letters()
    results = [one async for one in letters.redrive(Choice(), per_second=100)]
    assert [one.result for one in results] == ["redriven"] * len(before)
    await stage.until(stage.issues)
    await stage.until(stage.is_empty)
    assert await letters.letters() == []
    (view,) = await stage.issues()
    event = msgspec.json.decode(view.payload)["event"]
    assert event["retryCount"] == 1
    assert event["data"]["metadata"]["eventId"] == "Ev123ABC"
    assert "redrive_inbound" in str(await stage.engine.admin.audit(tenant="default"))


async def test_a_message_that_the_broker_moved_itself_is_read_and_redriven(moto, prefix, tmp_path):
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        await stage.send()
        for _ in range(4):
            # A program receives it and never deletes it. The fourth receive moves it.
            await stage.receive()
        (letter,) = await stage.letters.letters()
        assert (letter.shape, letter.message_id) == ("native", "unique-message-id")  # R3-9
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        await redrive_all(stage)


@pytest.mark.parametrize(
    ("body", "version", "error_type"),
    [
        ("not json", "1.0", "MalformedMessage"),
        (msgspec.json.encode(DOCUMENT).decode(), "2.0", "UnsupportedVersion"),
        ('{"messageId": "x"}', "1.0", "MalformedMessage"),
    ],
)
async def test_an_unreadable_message_is_a_dead_letter_at_once_and_is_not_redriven(
    moto, prefix, tmp_path, body, version, error_type
):
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        await stage.send(body, version=version)
        await stage.until(stage.dead)
        await stage.until(stage.is_empty)
        letters = stage.letters
        (letter,) = await letters.letters()
        assert (letter.shape, letter.error_type) == ("unreadable", error_type)
        assert (letter.attempt_count, letter.receive_count) == (1, 1)
        (result,) = [one async for one in letters.redrive(Choice())]
        assert result.result == "unreadable"
        assert len(await letters.letters()) == 1
        assert await stage.issues() == []


async def test_a_message_whose_letter_would_be_too_large_is_left_to_the_broker(
    moto, prefix, tmp_path
):
    async with boundary_stage(moto, prefix, tmp_path, visibility_seconds=1) as stage:
        # The fake's limit is 256 KiB.
        await stage.send("x" * (256 * 1024 - 200))
        await stage.send()
        assert len(await stage.until(stage.issues)) == 1
        await stage.until(stage.is_empty)
        (letter,) = await stage.letters.letters()
        assert letter.shape == "unreadable"  # S3-11


async def test_letters_are_redriven_one_at_a_time_by_filter_or_not_at_all(moto, prefix, tmp_path):
    async with boundary_stage(moto, prefix, tmp_path, consumes=False) as stage:
        boundary = stage.boundary
        for n, version in enumerate(("2.0", "1.0", "1.0")):
            body = msgspec.json.decode(msgspec.json.encode(DOCUMENT)) | {"messageId": f"m{n}"}
            await stage.send(body, version=version)
        await boundary.bury([one.envelope for one in await received(boundary, 3)])
        letters = stage.letters
        dry = [one async for one in letters.redrive(Choice(), dry_run=True)]
        assert sorted(one.result for one in dry) == ["unreadable", "would_redrive", "would_redrive"]
        assert len(await letters.letters()) == 3
        one = [result async for result in letters.redrive(Choice(frozenset({"m1"})))]
        assert [result.letter.message_id for result in one] == ["m1"]
        assert [(result.number, result.total) for result in one] == [(1, 1)]
        left = await letters.letters(Choice(event_type="slack.message"))
        assert sorted(letter.message_id for letter in left if letter.shape == "native") == ["m2"]


async def received(boundary, count: int) -> list[Any]:
    """So many messages, deleted."""
    found: list[Any] = []
    while len(found) < count:
        found += await boundary.receive(10, 1)
    await boundary.delete(found)
    return found


async def test_an_outage_of_the_store_uses_up_none_of_the_three_tries(
    moto, prefix, tmp_path, monkeypatch
):
    monkeypatch.setattr("gesta.intake.inbound.boundary.OUTAGE_SECONDS", 0)
    async with boundary_stage(moto, prefix, tmp_path) as stage:
        process, calls = stage.pipeline.inbox.process, 0

        async def fail_often(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls <= 5:
                raise StoreError("the disk is away")
            return await process(*args)

        monkeypatch.setattr(stage.pipeline.inbox, "process", fail_often)
        await stage.send()
        await stage.until(stage.issues)
        await stage.until(stage.is_empty)
        assert calls == 6
        assert not await stage.dead()


async def test_a_message_stays_hidden_while_it_is_processed(moto, prefix, tmp_path, monkeypatch):
    async with boundary_stage(moto, prefix, tmp_path, visibility_seconds=2) as stage:
        process, calls, hide = stage.pipeline.inbox.process, 0, stage.boundary.hide
        let_go, extended, extensions = asyncio.Event(), asyncio.Event(), 0

        async def slow(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            await let_go.wait()
            return await process(*args)

        async def counted(*args: Any) -> None:
            nonlocal extensions
            await hide(*args)
            extensions += 1
            if extensions == 2:
                # Two seconds have passed: without the first extension it would be visible.
                extended.set()

        monkeypatch.setattr(stage.pipeline.inbox, "process", slow)
        monkeypatch.setattr(stage.boundary, "hide", counted)
        await stage.send()
        await asyncio.wait_for(extended.wait(), 20)
        assert await stage.receive() == []  # S3-9
        let_go.set()
        await stage.until(stage.issues)
        await stage.until(stage.is_empty)
        assert calls == 1


def test_commands_list_and_redrive_the_letters(
    moto: MotoServer, prefix: str, cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one_unreadable_letter() -> None:
        async with boundary_stage(moto, prefix, folder) as stage:
            await stage.send("not json")
            await stage.until(stage.dead)

    async def one_dead_letter() -> None:
        async with boundary_stage(moto, prefix, folder, consumes=False) as stage:
            await stage.send()
            await stage.boundary.bury([one.envelope for one in await received(stage.boundary, 1)])

    asyncio.run(one_dead_letter())
    monkeypatch.setenv("GESTA_INBOUND_QUEUE_URL", moto.queue_url(prefix))
    (letter,) = cli("dlq", "inbound", "--json").items
    assert (letter["messageId"], letter["shape"]) == ("unique-message-id", "native")
    redriven = cli("dlq", "redrive-inbound", "--all", "--json")
    assert [one["result"] for one in redriven.items] == ["redriven"]
    assert {
        "level": "ok",
        "about": "inbound queue",
        "status": "1 event waiting, no dead letter",
    } in cli("doctor", "--json").items
    assert cli("dlq", "redrive-inbound", "--json").code == 2
    # One that cannot be read can be shown and deleted, and the alarm about it ends.
    asyncio.run(one_unreadable_letter())
    (letter,) = cli("dlq", "inbound", "--json").items
    assert (letter["originalMessage"], letter["errorType"]) == ("not json", "MalformedMessage")
    assert [
        one["result"] for one in cli("dlq", "purge-inbound", "--all", "--dry-run", "--json").items
    ] == ["would_purge"]
    purged = cli("dlq", "purge-inbound", letter["messageId"], "--json")
    assert [one["result"] for one in purged.items] == ["purged"]
    assert cli("dlq", "inbound", "--json").items == []
    assert cli("dlq", "purge-inbound", "--json").code == 2
