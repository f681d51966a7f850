from __future__ import annotations

import signal
from collections.abc import Iterator
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


@pytest.fixture
def ports(gesta: Harness) -> Iterator[Ports]:
    """The ports of every engine opened from here on can be made to fail."""
    faulty, before = Ports(), Wiring.wire

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        stores = environment.stores
        faulty.events, faulty.read_model, faulty.queue = (
            Faulty(stores.events),
            Faulty(stores.read_model),
            Faulty(stores.queue),
        )
        faulty.vault, faulty.transactions = Faulty(stores.vault), Faulty(stores.transactions)
        wired = replace(
            stores,
            events=faulty.events,
            read_model=faulty.read_model,
            queue=faulty.queue,
            vault=faulty.vault,
            transactions=faulty.transactions,
        )
        return replace(environment, stores=wired)

    Wiring.wire = staticmethod(wire)
    yield faulty
    Wiring.wire = staticmethod(before)


@pytest.fixture(params=["together", "apart"])
def calls(gesta: Harness, request: pytest.FixtureRequest) -> Iterator[Calls]:
    """With all ports in one database, and with the queue in another: then each step of a commit is
    a call of its own.
    """
    before, calls = Wiring.wire, Calls()

    def slow(stores: Stores, *names: str) -> Stores:
        ports: dict[str, Any] = {name: Slow(getattr(stores, name), calls) for name in names}
        return replace(stores, **ports)

    async def wire(settings: Settings) -> Environment:
        environment = await gesta.wire(settings)
        if request.param == "together":
            return replace(
                environment,
                stores=slow(
                    environment.stores, "events", "read_model", "queue", "vault", "transactions"
                ),
            )
        queue = (await gesta.wire(replace(settings, url=f"{settings.url} queue"))).stores
        main = slow(environment.stores, "events", "read_model", "vault")
        return replace(
            environment, stores=with_separate_queue(main, slow(queue, "queue"), gesta.runtime)
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
