"""Alarms about queues: too many jobs of a flow wait, the oldest waits too long, or requests have
failed permanently.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gesta.domain.event_message import AGE_ALARM_SECONDS, DEAD_LETTERS_ALARM, DEPTH_ALARM
from gesta.flows.flow import Flow, QueueAlarms
from gesta.ports.job_queue import Backlog

Alarm = Literal["depth", "age", "dead_letters"]
#: The name of the boundary queue in metrics and alarms. No flow has this name.
INBOUND = "inbound"
#: A ready job that waits this long while no job of its flow runs: no worker executes the flow.
#: Workers poll every second.
UNSERVED_MS = 30_000
INBOUND_ALARMS = QueueAlarms(DEPTH_ALARM, AGE_ALARM_SECONDS, DEAD_LETTERS_ALARM)


class Standing(msgspec.Struct, frozen=True):
    """One alarm of a flow, raised or not."""

    flow: str
    alarm: Alarm
    value: float
    limit: float
    is_raised: bool
    #: False: each occurrence alerts by itself, with its reason.
    alerts: bool = True


def standings(
    flows: Mapping[str, Flow],
    backlog: Mapping[str, Backlog],
    dead_letters: Mapping[str, int],
    now_ms: int,
) -> Iterator[Standing]:
    """Every alarm of every flow that has some, so that an alarm that has ended shows as ended."""
    for name, flow in sorted(flows.items()):
        if flow.queue_alarms is not None:
            jobs, dead = backlog.get(name, Backlog()), dead_letters.get(name, 0)
            yield from _standings(name, flow.queue_alarms, jobs, dead, now_ms)


def inbound_standings(events: Backlog, dead_letters: int, now_ms: int) -> Iterator[Standing]:
    """The alarms of the boundary queue."""
    for one in _standings(INBOUND, INBOUND_ALARMS, events, dead_letters, now_ms):
        # Its dead letters are not requests, so no other alert covers them.
        yield msgspec.structs.replace(one, alerts=True)


def _standings(
    name: str, limits: QueueAlarms, jobs: Backlog, dead: int, now_ms: int
) -> Iterator[Standing]:
    depth = jobs.ready + jobs.waiting + jobs.held
    oldest_ms = jobs.oldest_ready_ms
    age = 0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)
    yield Standing(name, "depth", depth, limits.depth, depth > limits.depth)
    yield Standing(name, "age", age, limits.age_seconds, age > limits.age_seconds)
    yield Standing(
        name, "dead_letters", dead, limits.dead_letters, dead >= limits.dead_letters, alerts=False
    )
