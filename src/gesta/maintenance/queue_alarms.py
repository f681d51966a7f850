"""Alarms about queues: too many jobs of a flow wait, the oldest waits too long, or requests have
failed for good.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from gesta.flows.flow import Flow
from gesta.ports.job_queue import Backlog

Alarm = Literal["depth", "age", "dead_letters"]


class Standing(msgspec.Struct, frozen=True):
    """One alarm of a flow, raised or not."""

    flow: str
    alarm: Alarm
    value: float
    limit: float
    is_raised: bool


def standings(
    flows: Mapping[str, Flow],
    backlog: Mapping[str, Backlog],
    dead_letters: Mapping[str, int],
    now_ms: int,
) -> Iterator[Standing]:
    """Every alarm of every flow that has some, so that one that is over shows as such."""
    for name, flow in sorted(flows.items()):
        limits, jobs = flow.queue_alarms, backlog.get(name, Backlog())
        if limits is None:
            continue
        depth = jobs.ready + jobs.waiting + jobs.held
        oldest_ms = jobs.oldest_ready_ms
        age = 0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)
        dead = dead_letters.get(name, 0)
        yield Standing(name, "depth", depth, limits.depth, depth > limits.depth)
        yield Standing(name, "age", age, limits.age_seconds, age > limits.age_seconds)
        yield Standing(name, "dead_letters", dead, limits.dead_letters, dead >= limits.dead_letters)
