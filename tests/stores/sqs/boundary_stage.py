"""An engine whose inbound events pass through SQS, and another program on the same queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from gesta import Engine
from gesta.engine.pipeline import Pipeline
from gesta.intake.inbound import slack as slack_events
from gesta.intake.inbound.boundary_dead_letters import BoundaryDeadLetters
from gesta.ports.boundary_queue import BoundaryCounts, BoundaryQueue
from gesta.ports.read_model import Filter
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import load
from gesta.stores.sqs.address import address_of
from gesta.stores.sqs.client import Sqs
from gesta.testing.moto_server import MotoServer
from tests.domain.event_document import ATTRIBUTES, DOCUMENT
from tests.intake.inbound.slack_posts import SECRET, TEAM, issue, post


class Stage:
    def __init__(self, engine: Engine, sqs: Sqs, name: str) -> None:
        self.engine, self.sqs, self.name = engine, sqs, name

    @property
    def pipeline(self) -> Pipeline:
        return self.engine.pipeline

    async def url(self, suffix: str = "") -> str:
        found = await self.sqs.call("get_queue_url", QueueName=self.name + suffix)
        return str(found["QueueUrl"])

    async def post(self, text: str, number: int = 1) -> list[Any]:
        """Slack posts an event."""
        return await post(self.pipeline.inbox, text, number, SystemRuntime().now_ms())

    async def send(self, body: str | dict[str, Any] = DOCUMENT, **attributes: str) -> None:
        """Another program sends a message."""
        text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
        given = ATTRIBUTES | {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        }
        await self.sqs.call(
            "send_message", QueueUrl=await self.url(), MessageBody=text, MessageAttributes=given
        )

    async def receive(self, suffix: str = "") -> list[dict[str, Any]]:
        """What another program would receive, body and attributes; visible again at once."""
        found = await self.sqs.call(
            "receive_message",
            QueueUrl=await self.url(suffix),
            MaxNumberOfMessages=10,
            VisibilityTimeout=0,
            WaitTimeSeconds=0,
            MessageAttributeNames=["All"],
        )
        return [
            {"body": msgspec.json.decode(one["Body"]), "attributes": one.get("MessageAttributes")}
            for one in found.get("Messages", ())
        ]

    async def issues(self) -> list[Any]:
        find = self.pipeline.environment.stores.read_model.find
        return await find(Filter("default", flow="test.issue", limit=50))

    async def until(self, holds: Any) -> Any:
        async with asyncio.timeout(30):
            while not (found := await holds()):
                await asyncio.sleep(0.05)
        return found

    @property
    def boundary(self) -> BoundaryQueue:
        assert self.pipeline.environment.boundary is not None
        return self.pipeline.environment.boundary

    @property
    def letters(self) -> BoundaryDeadLetters:
        assert self.pipeline.boundary_dead_letters is not None
        return self.pipeline.boundary_dead_letters

    async def counts(self) -> BoundaryCounts:
        return await self.boundary.counts()

    async def is_empty(self) -> bool:
        counts = await self.counts()
        return counts.waiting == counts.in_flight == 0

    async def dead(self, count: int = 1) -> bool:
        return (await self.counts()).dead >= count


@asynccontextmanager
async def boundary_stage(
    moto: MotoServer,
    name: str,
    folder: Path,
    *,
    visibility_seconds: int = 60,
    consumes: bool = True,
    flow: str = "test.issue",
) -> AsyncIterator[Stage]:
    url = moto.queue_url(name, visibility_seconds)
    settings = load({"url": f"sqlite:///{folder}/gesta.db", "inbound_queue_url": url})
    sqs = Sqs(address_of(url), SystemRuntime())
    engine = Engine(flows=[issue, slack_events.flow()], settings=settings, work=consumes)
    try:
        async with engine:
            await engine.admin.put_config(
                "slack.team", TEAM, {"signing_secret": SECRET, "flow": flow}
            )
            yield Stage(engine, sqs, name)
    finally:
        await sqs.close()
