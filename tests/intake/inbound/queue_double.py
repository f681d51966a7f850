"""A double of the boundary queue, on the clock of the test.

It behaves as SQS does: a received message is hidden, its newest receipt alone deletes it, the
fourth receive moves it to the dead letters, and what SQS refuses is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import cast

import pytest

from gesta import Engine
from gesta.domain.event_message import Attributes
from gesta.engine.environment import Environment, Wiring
from gesta.errors import MessagesRefused
from gesta.intake.inbound import slack as slack_events
from gesta.intake.inbound.boundary import Consumer
from gesta.ports.boundary_queue import BoundaryCounts, BoundaryQueue, Delivery, Envelope
from gesta.ports.read_model import View
from gesta.runtime.clock import Runtime
from gesta.runtime.settings import Settings
from gesta.testing.plugin import Harness
from tests.intake.inbound.slack_posts import SECRET, TEAM, issue

RECEIVES_MAX = 3
MESSAGE_BYTES_MAX = 1024 * 1024
ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Kept:
    envelope: Envelope
    sent_ms: int
    #: By the monotonic clock.
    visible_at: float
    receives: int = 0
    receipt: str = ""


class QueueDouble:
    name, visibility_seconds = "sqs://eu-west-1/events", 60

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._receipts = runtime, count(1)
        self.live: list[Kept] = []
        self.dead: list[Kept] = []

    async def send(self, envelopes: Sequence[Envelope], delay_seconds: int = 0) -> None:
        self._put(self.live, envelopes, delay_seconds)

    async def bury(self, envelopes: Sequence[Envelope]) -> None:
        self._put(self.dead, envelopes, 0)

    async def receive(self, limit: int, _wait_seconds: int) -> list[Delivery]:
        found = self._receive(self.live, limit, self.visibility_seconds)
        moved = [one for one in found if one.receives > RECEIVES_MAX]
        self.live = [one for one in self.live if one not in moved]
        self.dead += [replace(one, visible_at=0.0, receives=0, receipt="") for one in moved]
        return [_delivery(one) for one in found if one not in moved]

    async def dead_letters(self, limit: int, seconds: int) -> list[Delivery]:
        return [_delivery(one) for one in self._receive(self.dead, limit, seconds)]

    async def hide(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        self._hide(self.live, deliveries, seconds)

    async def hide_dead(self, deliveries: Sequence[Delivery], seconds: int) -> None:
        self._hide(self.dead, deliveries, seconds)

    async def delete(self, deliveries: Sequence[Delivery]) -> None:
        receipts = {one.receipt for one in deliveries}
        self.live = [one for one in self.live if one.receipt not in receipts]

    async def delete_dead(self, deliveries: Sequence[Delivery]) -> None:
        receipts = {one.receipt for one in deliveries}
        self.dead = [one for one in self.dead if one.receipt not in receipts]

    async def arn(self) -> str:
        return "arn:aws:sqs:eu-west-1:123456789012:events"

    async def counts(self) -> BoundaryCounts:
        return BoundaryCounts(len(self.live), 0, len(self.dead))

    async def close(self) -> None: ...

    def _put(self, to: list[Kept], envelopes: Sequence[Envelope], delay_seconds: int) -> None:
        """Takes each that it can; raises for the rest, as the adapter does."""
        refused = [n for n, one in enumerate(envelopes) if _is_refused(one)]
        at = self._runtime.monotonic() + delay_seconds
        to += [
            Kept(one, self._runtime.now_ms(), at)
            for n, one in enumerate(envelopes)
            if n not in refused
        ]
        if refused:
            raise MessagesRefused(f"SQS did not take {len(refused)} messages", refused)

    def _receive(self, queue: list[Kept], limit: int, seconds: int) -> list[Kept]:
        now = self._runtime.monotonic()
        found = [one for one in queue if one.visible_at <= now][:limit]
        for one in found:
            one.receives += 1
            one.visible_at = now + seconds
            one.receipt = f"receipt-{next(self._receipts)}"
        return found

    def _hide(self, queue: list[Kept], deliveries: Sequence[Delivery], seconds: int) -> None:
        receipts = {one.receipt for one in deliveries}
        for one in queue:
            if one.receipt in receipts:
                one.visible_at = self._runtime.monotonic() + seconds


def _is_refused(envelope: Envelope) -> bool:
    return len(envelope.body) > MESSAGE_BYTES_MAX or bool(ILLEGAL.search(envelope.body.decode()))


def _delivery(one: Kept) -> Delivery:
    return Delivery(one.envelope, one.receipt, one.receives, one.sent_ms)


class DoubleStage:
    """An engine whose consumer runs when the test lets it."""

    def __init__(self, gesta: Harness, engine: Engine, queue: QueueDouble) -> None:
        self._gesta, self.engine, self.queue = gesta, engine, queue

    async def issues(self) -> list[View]:
        await self._gesta.settle(days=0)
        return await self.engine.find(flow="test.issue")

    @property
    def consumer(self) -> Consumer:
        assert self.engine.pipeline.boundary_consumer is not None
        return self.engine.pipeline.boundary_consumer

    def another_consumer(self) -> Consumer:
        """That of another process."""
        pipeline = self.engine.pipeline
        return Consumer(
            cast("BoundaryQueue", self.queue),
            inbox=pipeline.inbox,
            records=pipeline.records,
            tenant="default",
            age=pipeline.inbound_age,
            process=pipeline.process,
        )

    async def send(self, body: bytes, version: str = "1.0") -> None:
        attributes = Attributes("slack.message", "slack-event-ingest", version=version)
        await self.queue.send([Envelope(body, attributes)])


@asynccontextmanager
async def double_stage(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DoubleStage]:
    queue = QueueDouble(gesta.runtime)

    async def wire(settings: Settings) -> Environment:
        return replace(await gesta.wire(settings), boundary=cast("BoundaryQueue", queue))

    monkeypatch.setattr(Wiring, "wire", staticmethod(wire))

    async def idle(_: Consumer) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Consumer, "run", idle)
    settings = Settings(url="sqlite:///double.db", inbound_queue_url=queue.name)
    async with Engine(settings=settings, flows=[issue, slack_events.flow()]) as engine:
        team = {"signing_secret": SECRET, "flow": "test.issue"}
        await engine.admin.put_config("slack.team", TEAM, team)
        yield DoubleStage(gesta, engine, queue)
