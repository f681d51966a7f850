"""Alarms about the queues of tickets and of inbound events: in metrics, doctor and alerts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import cast

import msgspec
import pytest

from gesta import Engine, Money
from gesta.admin.doctor.checks import diagnose
from gesta.admin.doctor.collect import examine
from gesta.domain.event_message import Attributes
from gesta.domain.state import State
from gesta.domain.transaction.funds import opening_facts, read_funds
from gesta.engine.environment import Environment, Wiring
from gesta.errors import StoreError
from gesta.flows import card, slack, ticket
from gesta.intake.inbound import slack as slack_events
from gesta.intake.inbound.queue_age import QueueAge
from gesta.maintenance.queue_alarms import standings
from gesta.maintenance.unknown_money import unknown_money
from gesta.ports.boundary_queue import BoundaryCounts, BoundaryQueue, Delivery, Envelope
from gesta.ports.job_queue import Backlog
from gesta.ports.read_model import SweepIndex
from gesta.runtime.clock import Runtime, sleep
from gesta.runtime.settings import Settings
from gesta.testing.plugin import Harness

NOW = 1_800_000_000_000
FLOWS = {"ticket.backlog": ticket.flow(), "notification.slack": slack.flow()}


def raised(jobs: Backlog, dead: int = 0) -> set[str]:
    found = standings(FLOWS, {"ticket.backlog": jobs}, {"ticket.backlog": dead}, NOW)
    return {one.alarm for one in found if one.is_raised}


def test_the_alarms_are_raised_above_the_numbers_of_the_contract() -> None:
    # R3-16, S3-27
    assert raised(Backlog(ready=100)) == set()
    assert raised(Backlog(ready=60, waiting=41)) == {"depth"}
    assert raised(Backlog(ready=1, oldest_ready_ms=NOW - 600_000)) == set()
    assert raised(Backlog(ready=1, oldest_ready_ms=NOW - 601_000)) == {"age"}
    assert raised(Backlog(), dead=1) == {"dead_letters"}


def test_a_flow_without_alarms_of_its_own_has_none() -> None:
    found = standings(FLOWS, {"notification.slack": Backlog(ready=10_000)}, {}, NOW)
    assert {one.flow for one in found} == {"ticket.backlog"}


async def test_a_deep_queue_shows_in_metrics_doctor_and_alert(gesta: Harness) -> None:
    settings = Settings(url="sqlite:///alarms.db", alerts_to="notification.slack:C0PS")
    flows = [ticket.flow(), slack.flow(token="xoxb-1")]
    async with Engine(settings=settings, flows=flows) as engine:
        project = {"project_id": 7, "issue_type_id": 8}
        await engine.admin.put_config("backlog.project", "default", project)
        # No space is stored, so all of them wait.
        await engine.submit_many([ticket.Ticket(f"task {number}") for number in range(101)])
        for _ in range(3):
            gesta.advance(70)
            await gesta.settle(days=0)
        findings = diagnose(await examine(engine.pipeline, "default"))
        (about,) = [one for one in findings if one.about == "alarm ticket.backlog"]
        assert about.level == "warn"
        assert about.status == "101 requests wait, more than 100"  # R3-16
        shown = engine.metrics().decode()
        found = re.findall(r'gesta_queue_alarm\{alarm="(\w+)",flow="ticket.backlog"\} (\S+)', shown)
        assert dict(found) == {"depth": "1.0", "age": "0.0", "dead_letters": "0.0"}  # R3-16
        alerts = [one.text for one in gesta.sandbox.slack.effects]
        assert any(
            "too many requests of ticket.backlog are waiting" in one for one in alerts
        )  # S3-27


class FakeBoundary:
    """A fake of the boundary queue: it has the counts and the deliveries that a test gives it."""

    name, visibility_seconds = "sqs://eu-west-1/events", 60

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.found = BoundaryCounts(0, 0, 0)
        self.deliveries: list[Delivery] = []

    async def counts(self) -> BoundaryCounts:
        return self.found

    async def receive(self, _: int, wait_seconds: int) -> list[Delivery]:
        if not self.deliveries:
            await sleep(self._runtime, wait_seconds)
        found, self.deliveries = self.deliveries, []
        return found

    async def arn(self) -> str:
        return "arn"

    async def bury(self, _: object) -> None: ...
    async def delete(self, _: object) -> None: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def engine_with_boundary(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch, *, work: bool
) -> AsyncIterator[tuple[Engine, FakeBoundary]]:
    queue = FakeBoundary(gesta.runtime)

    async def wire(settings: Settings) -> Environment:
        return replace(await gesta.wire(settings), boundary=cast("BoundaryQueue", queue))

    monkeypatch.setattr(Wiring, "wire", staticmethod(wire))
    settings = Settings(
        url="sqlite:///alarms.db",
        inbound_queue_url=queue.name,
        alerts_to="notification.slack:C0PS",
    )
    flows = [slack.flow(token="xoxb-1"), slack_events.flow()]
    async with Engine(settings=settings, flows=flows, work=work) as engine:
        yield engine, queue


def inbound_alarms(engine: Engine) -> set[str]:
    shown = engine.metrics().decode()
    return set(re.findall(r'gesta_queue_alarm\{alarm="(\w+)",flow="inbound"\} 1.0', shown))


async def test_alarms_of_the_boundary_queue_show_in_metrics_doctor_and_alert(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_with_boundary(gesta, monkeypatch, work=True) as (engine, queue):
        queue.found = BoundaryCounts(waiting=101, in_flight=2, dead=1)
        envelope = Envelope(b"not an event", Attributes("slack.message", "slack-event-ingest"))
        sent_ms = gesta.runtime.now_ms() - 601_000
        queue.deliveries = [Delivery(envelope, "receipt", 1, sent_ms)]
        for _ in range(4):
            gesta.advance(70)
            await gesta.settle(days=0)
        assert inbound_alarms(engine) == {"depth", "age", "dead_letters"}  # R3-16, S3-27
        shown = engine.metrics().decode()
        assert 'gesta_queue_depth{flow="inbound",status="ready"} 101.0' in shown  # R3-16
        assert 'gesta_dead_letters{flow="inbound"} 1.0' in shown
        (age,) = re.findall(r'gesta_queue_oldest_ready_seconds\{flow="inbound"\} (\S+)', shown)
        assert float(age) > 600  # R3-16
        findings = diagnose(await examine(engine.pipeline, "default"))
        texts = [one.status for one in findings if one.about == "inbound queue"]
        assert texts[0] == "101 events wait, more than 100"
        assert texts[1].startswith("the oldest event has waited for ")  # S3-27
        assert texts[2] == "dead letters: 1"
        (parts,) = [one.status for one in findings if one.about == "store" and " in " in one.status]
        assert "inbound events in sqs://eu-west-1/events" in parts
        alerts = " ".join(one.text for one in gesta.sandbox.slack.effects)
        assert "too many requests of inbound are waiting" in alerts  # R3-16
        assert "a request of inbound has been waiting for too long" in alerts  # S3-27
        assert "the inbound queue has dead letters" in alerts  # S3-27
        queue.found = BoundaryCounts(0, 0, 0)
        gesta.advance(70)
        await gesta.settle(days=0)
        assert inbound_alarms(engine) == set()


async def test_events_that_wait_while_no_worker_runs_grow_old(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_with_boundary(gesta, monkeypatch, work=False) as (engine, queue):
        queue.found = BoundaryCounts(waiting=1, in_flight=0, dead=0)
        for seconds, expected in ((0, set()), (599, set()), (2, {"age"})):
            gesta.advance(seconds)
            await engine.pipeline.store_metrics.step()
            assert inbound_alarms(engine) == expected  # R3-16
        # A consumer that receives a young message knows better.
        await engine.pipeline.inbound_age.received(gesta.runtime.now_ms())
        await engine.pipeline.store_metrics.step()
        assert inbound_alarms(engine) == set()


async def test_the_age_alarm_ends_when_the_consumer_that_noted_it_has_stopped(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_with_boundary(gesta, monkeypatch, work=False) as (engine, queue):
        queue.found = BoundaryCounts(waiting=1, in_flight=0, dead=0)
        checkpoints = engine.pipeline.environment.stores.checkpoints
        stopping, going_on = (QueueAge(checkpoints, gesta.runtime) for _ in range(2))
        await going_on.received(gesta.runtime.now_ms())
        await stopping.received(gesta.runtime.now_ms() - 601_000)
        await engine.pipeline.store_metrics.step()
        assert inbound_alarms(engine) == {"age"}
        gesta.advance(61)
        await going_on.received(gesta.runtime.now_ms())
        await engine.pipeline.store_metrics.step()
        assert inbound_alarms(engine) == set()


async def test_a_broker_out_of_reach_hides_nothing_of_our_own_store(
    gesta: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine_with_boundary(gesta, monkeypatch, work=True) as (engine, queue):

        async def fail() -> BoundaryCounts:
            raise StoreError("the broker is out of reach")

        monkeypatch.setattr(queue, "counts", fail)
        await engine.admin.pause(flow="notification.slack")
        await engine.submit(slack.Message(channel="C0PS", text="hello"))
        for _ in range(3):
            gesta.advance(70)
            await gesta.settle(days=0)
        shown = engine.metrics().decode()
        assert 'gesta_queue_depth{flow="notification.slack",status="held"} 1.0' in shown
        assert inbound_alarms(engine) == set()


async def test_the_money_of_test_requests_is_not_in_doubt() -> None:
    flow = card.flow()
    facts = read_funds(opening_facts(Money("4.00", "EUR"), "sale"), "sale")
    live = State(
        "r",
        "default",
        flow.name,
        "unknown",
        1,
        0,
        0,
        phase="unknown",
        operation="sale",
        facts=facts,
    )

    class Index:
        async def unknown(self, *_: object) -> list[State]:
            return [live, msgspec.structs.replace(live, test=True)]

    found = await unknown_money([flow], cast("SweepIndex", Index()), NOW)
    assert {key: (one.count, one.amount) for key, one in found.items()} == {
        (flow.name, "EUR"): (1, Decimal("4.00"))
    }
