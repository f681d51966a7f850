"""The pytest plugin. Its fixture `gesta` runs every Engine of a test on memory stores, a clock of
its own and the sandbox's fake providers.

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

# Imports are inside functions: pytest loads this module in every project that has gesta installed.

#: After so many turns of the event loop without a new wait, all tasks count as waiting.
QUIET_TURNS = 25
#: The value of every `env:NAME` in a test. It has the form of a webhook secret; other secrets may
#: have any form.
SECRET = "whsec_" + base64.b64encode(b"a secret of the sandbox!").decode()


class Harness:
    """The value of the fixture.

    `sandbox` has the fake providers: `gesta.sandbox.webhook.next(status=429, retry_after=30)`.
    """

    def __init__(self) -> None:
        from gesta.runtime.clock import ManualRuntime, SystemRuntime
        from gesta.sandbox import Sandbox

        # It starts now, so that `deliver_at=datetime.now(UTC) + …` works in a test.
        self.runtime = ManualRuntime(SystemRuntime().now_ms())
        self.sandbox = Sandbox()
        self._databases: dict[str, MemoryDatabase] = {}
        self._pipelines: list[Pipeline] = []

    async def wire(self, settings: Settings) -> Environment:
        """Replaces gesta.engine.environment.wire_really. The same URL gives the same database."""
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
            built=self._pipelines.append,
            settings=settings,
            mail=SandboxMail(self.runtime, self.sandbox.smtp),
        )

    def advance(self, seconds: float) -> None:
        """Move the clock. What falls due runs at the next await."""
        self.runtime.advance(seconds)

    async def settle(self, days: float = 60.0) -> None:
        """Move the clock until nothing is due any more, at most so many days: retries, schedules,
        expiry, reconciliation.

        Handlers of `engine.on` have received every event then, unless one keeps raising.
        """
        end_ms = self.runtime.now_ms() + days * 86_400_000
        while True:
            await self._quiet()
            next_ms = await self._next_due_ms()
            if next_ms is None or next_ms > end_ms:
                return
            self.runtime.advance_to(max(next_ms, self.runtime.now_ms() + 1))

    async def pass_time(self, seconds: float) -> None:
        """Move the clock by this time and run everything that falls due meanwhile."""
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
        """The time of the next event other than housekeeping; None: there is none."""
        moments: list[float] = []
        for pipeline in self._pipelines:
            if not pipeline.is_running:
                continue
            if pipeline.pool.in_flight and self.runtime.next_timer_ms is not None:
                # An attempt waits on this clock, for a slow answer or its own deadline.
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
                    # A handler waits for something.
                    moments.append(self.runtime.next_timer_ms)
                elif one.next_due_ms is not None:
                    moments.append(one.next_due_ms)
        return min(moments, default=None)


def _reference(text: str) -> str:
    return SECRET if text.startswith("env:") else text


@pytest.fixture
def gesta() -> Iterator[Harness]:
    """Runs every Engine of the test on memory stores, the test's clock and the sandbox."""
    from gesta.engine.environment import Wiring

    harness, before = Harness(), Wiring.wire
    Wiring.wire = staticmethod(harness.wire)
    yield harness
    Wiring.wire = staticmethod(before)
