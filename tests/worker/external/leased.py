"""Flows that others execute, and the others: what the tests of handing out share."""

from __future__ import annotations

from typing import Any

from gesta import Engine, Flow, Payload, Personal, external
from gesta.domain.retry_policy import RetryPolicy
from gesta.testing.plugin import Harness
from gesta.worker.external import WorkItem
from tests.world import let_run

FLOW = "warehouse.pick"
URL = "memory:warehouse"
LEASE_SECONDS = 60.0
#: The sweep looks every two seconds, half a second later at most.
NOTICED_SECONDS = 3.0


class Pick(Payload, frozen=True):
    sku: str = "A-7"
    count: int = 1


class Parcel(Payload, frozen=True):
    to: Personal[str]
    order: str = "A-7"


def pick_flow(**options: Any) -> Flow:
    options.setdefault("retry", RetryPolicy(attempts=5, base_seconds=10, cap_seconds=10))
    options.setdefault("on_unknown", "manual")
    return external(
        FLOW,
        payload=options.pop("payload", Pick),
        lease_seconds=options.pop("lease_seconds", LEASE_SECONDS),
        **options,
    )


def warehouse(**options: Any) -> Engine:
    return Engine(options.pop("url", URL), flows=[pick_flow(**options)])


async def take(engine: Engine, gesta: Harness, **options: Any) -> list[WorkItem]:
    """Once everything that was submitted has come into its external queue."""
    await let_run(gesta)
    return await engine.external.take(FLOW, **{"limit": 10, **options})


async def take_one(engine: Engine, gesta: Harness, **options: Any) -> WorkItem:
    (item,) = await take(engine, gesta, **options)
    return item
