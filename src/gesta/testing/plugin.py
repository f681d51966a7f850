"""The pytest plugin: the fixture `gesta` puts every Engine of a test on memory stores, an own clock
and the sandbox's doubles.

No sleep and no server: `await gesta.settle()` moves the clock until nothing is due.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gesta.engine.environment import Environment
    from gesta.engine.pipeline import Pipeline
    from gesta.ports.stores import Stores
    from gesta.runtime.settings import Settings
    from gesta.stores.memory.database import MemoryDatabase

# Imported inside functions: pytest loads this module in every project that has gesta installed,
# whether it uses the fixture or not.

#: Turns of the event loop without a new wait after which everybody is taken to be waiting.
QUIET_TURNS = 25
#: What every `env:NAME` stands for in a test; it has the form of a webhook secret, and any form
#: will do for the others.
SECRET = "whsec_" + base64.b64encode(b"a secret of the sandbox!").decode()


class Harness:
    """What a test holds in its hands.

    `sandbox` has the doubles: `gesta.sandbox.webhook.next(status=429, retry_after=30)`.
    """

    def __init__(self) -> None:
        from gesta.runtime.clock import ManualRuntime, SystemRuntime
        from gesta.sandbox import Sandbox

        # It starts now, so that `deliver_at=datetime.now(UTC) + …` means in a test what it says.
        self.runtime = ManualRuntime(SystemRuntime().now_ms())
        self.sandbox = Sandbox()
        self._databases: dict[str, MemoryDatabase] = {}
        self._roads: list[Pipeline] = []

    async def wire(self, settings: Settings) -> Environment:
        """Stands in for gesta.engine.environment.wire_really: the same URL leads to the same memory
        database.
        """
        from gesta.engine.environment import Environment
        from gesta.sandbox import SandboxTransport
        from gesta.sandbox.smtp import SandboxMail
        from gesta.security.envelope_encryption import MasterKey
        from gesta.stores.memory.database import MemoryDatabase
        from gesta.stores.separate_queue import with_separate_queue

        def stores_of(url: str) -> Stores:
            if url not in self._databases:
                self._databases[url] = MemoryDatabase(self.runtime)
            return self._databases[url].stores()

        stores = stores_of(settings.url)
        if settings.queue_url not in (None, settings.url):
            stores = with_separate_queue(stores, stores_of(settings.queue_url), self.runtime)
        transport = SandboxTransport(self.runtime, self.sandbox)
        master = MasterKey(base64.b64encode(bytes(32)).decode(), "the test")
        return Environment(
            self.runtime,
            stores,
            transport,
            master,
            _reference,
            pass_time=self.pass_time,
            drain_seconds=0,
            built=self._roads.append,
            settings=settings,
            mail=SandboxMail(self.runtime, self.sandbox.smtp),
        )

    def advance(self, seconds: float) -> None:
        """Move the clock; what falls due runs at the next await."""
        self.runtime.advance(seconds)

    async def settle(self, days: float = 60.0) -> None:
        """Move the clock until nothing is due any more, at most so many days: retries, schedules,
        expiry, questions to providers.

        Handlers of `engine.on` have been told of everything then; one that raises time after time
        is not waited for for ever.
        """
        end_ms = self.runtime.now_ms() + days * 86_400_000
        while True:
            await self._quiet()
            next_ms = await self._next_due_ms()
            if next_ms is None or next_ms > end_ms:
                return
            self.runtime.advance_to(max(next_ms, self.runtime.now_ms() + 1))

    async def pass_time(self, seconds: float) -> None:
        """What waiting for an outcome means on this clock: everything that falls due meanwhile
        happens, and then the wait is over.
        """
        end_ms = self.runtime.now_ms() + seconds * 1000
        await self.settle(days=seconds / 86_400)
        self.runtime.advance_to(end_ms)

    async def _quiet(self) -> None:
        from gesta.runtime.clock import turn

        begun, quiet = -1, 0
        while quiet < QUIET_TURNS:
            quiet = quiet + 1 if self.runtime.waits_begun == begun else 0
            begun = self.runtime.waits_begun
            await turn()

    async def _next_due_ms(self) -> float | None:
        """When something happens next that is not mere housekeeping; None: everything has come to
        its end.
        """
        moments: list[float] = []
        for pipeline in self._roads:
            if not pipeline.is_running:
                continue
            if pipeline.pool.in_flight and self.runtime.next_timer_ms is not None:
                # An attempt waits for something on this clock: a slow answer, its own deadline.
                moments.append(self.runtime.next_timer_ms)
            due, next_sweep = await pipeline.environment.stores.sweep_index.due(
                self.runtime.now_ms(), 1
            )
            if due and self.runtime.next_timer_ms is not None:
                moments.append(self.runtime.next_timer_ms)
            moments += [
                moment for moment in (next_sweep, pipeline.pool.next_due_ms) if moment is not None
            ]
            for one in pipeline.subscriptions.subscribers:
                if one.is_calling and self.runtime.next_timer_ms is not None:
                    # A handler waits for something, on this clock or outside.
                    moments.append(self.runtime.next_timer_ms)
                elif one.next_due_ms is not None:
                    moments.append(one.next_due_ms)
        return min(moments, default=None)


def _reference(text: str) -> str:
    return SECRET if text.startswith("env:") else text


@pytest.fixture
def gesta() -> Iterator[Harness]:
    """Every Engine that the test opens runs on memory stores, on the test's clock, against the
    sandbox.
    """
    from gesta.engine.environment import Wiring

    harness, before = Harness(), Wiring.wire
    Wiring.wire = staticmethod(harness.wire)
    yield harness
    Wiring.wire = staticmethod(before)
