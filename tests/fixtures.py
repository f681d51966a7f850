from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gesta.engine.environment import Environment, Wiring
from gesta.ports.stores import Stores
from gesta.runtime.clock import ManualRuntime
from gesta.runtime.settings import Settings
from gesta.stores.separate_queue import with_separate_queue
from gesta.testing.plugin import Harness
from tests.world import Calls, Faulty, Ports, Slow


@pytest.fixture
def gesta(gesta: Harness) -> Harness:
    """On a clock that begins at 2027-01-15T08:00:00Z, so that times can be written down."""
    gesta.runtime = ManualRuntime()
    return gesta


#: Of a queue.
QUEUE = frozenset({"queue", "eager_jobs", "job_inspection", "job_holds", "external_leases"})
#: Those whose calls can be made to fail.
PORTS = QUEUE | {
    "events",
    "key_claims",
    "read_model",
    "sweep_index",
    "checkpoints",
    "leases",
    "undispatched_jobs",
    "vault",
    "transactions",
}


def wrap(stores: Stores, kind: Callable[[Any], Any]) -> dict[str, Any]:
    """Each port in a wrapper. Ports that one object implements share one."""
    found: dict[int, Any] = {}
    return {
        name: found.setdefault(id(port), kind(port))
        for name in stores.capabilities
        for port in [getattr(stores, name)]
    }


@pytest.fixture
def ports(gesta: Harness) -> Iterator[Ports]:
    """The ports of every engine opened from here on can be made to fail."""
    faulty, before = Ports(), Wiring.wire

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        stores = environment.stores
        wrapped = {name: one for name, one in wrap(stores, Faulty).items() if name in PORTS}
        for name in ("events", "read_model", "queue", "vault", "transactions"):
            setattr(faulty, name, wrapped[name])
        return replace(environment, stores=replace(stores, **wrapped))

    Wiring.wire = staticmethod(wire)
    yield faulty
    Wiring.wire = staticmethod(before)


@pytest.fixture(params=["together", "separate"])
def calls(gesta: Harness, request: pytest.FixtureRequest) -> Iterator[Calls]:
    """With all ports in one database, and with the queue in another: then each step of a commit is
    a call of its own.
    """
    before, calls = Wiring.wire, Calls()

    def slow(stores: Stores, names: frozenset[str]) -> Stores:
        wrapped = wrap(stores, lambda port: Slow(port, calls))
        return replace(stores, **{name: one for name, one in wrapped.items() if name in names})

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        if request.param == "together":
            return replace(
                environment,
                stores=slow(environment.stores, PORTS),
            )
        queue = (await gesta.wire(replace(settings, url=f"{settings.url} queue"))).stores
        main = slow(environment.stores, PORTS - QUEUE - {"transactions"})
        return replace(
            environment, stores=with_separate_queue(main, slow(queue, QUEUE), gesta.runtime)
        )

    Wiring.wire = staticmethod(wire)
    yield calls
    Wiring.wire = staticmethod(before)


@pytest.fixture(autouse=True)
def no_test_waits_for_ever() -> Iterator[None]:
    """On a clock of its own a test that waits for what never comes would hang, not fail."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the test waited for something that did not come")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, 30)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
