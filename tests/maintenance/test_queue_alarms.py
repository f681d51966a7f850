"""Alarms about the queue of tickets: as a metric, a finding of the doctor and an alert."""

from __future__ import annotations

import re

from gesta import Engine
from gesta.admin.doctor.checks import diagnose
from gesta.admin.doctor.collect import examine
from gesta.flows import slack, ticket
from gesta.maintenance.queue_alarms import standings
from gesta.ports.job_queue import Backlog
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
        assert any("too many requests of ticket.backlog wait" in one for one in alerts)  # S3-27
