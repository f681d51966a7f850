"""A consumer of the log that does nothing until a tenant first stores config of some kind.

Most installations never need it, and following the log costs a read of every event.
"""

from gesta.runtime.clock import Signal
from gesta.runtime.component import repeat
from gesta.subscriptions.log_consumer import POLL_SECONDS, Log, LogConsumer, Since
from gesta.tenants.config import ConfigCache


class OnDemandConsumer(LogConsumer):
    starts_on_demand = True

    def __init__(
        self, name: str, since: Since, log: Log, *, kind: str, config: ConfigCache
    ) -> None:
        """`kind`: the config that it is needed for."""
        super().__init__(name, since, log)
        self.kind, self._config = kind, config
        self._wanted, self._is_needed = Signal(self._runtime), False

    async def begin(self) -> None:
        """Store the checkpoint before the first config of the kind, so that no event is missed."""
        # Never 0: that means that there is no checkpoint. The first event of an empty log is the
        # config itself.
        await self._checkpoints.begin(self.checkpoint, max(1, await self._events.end()))

    def wake(self) -> None:
        """Start now: this process has stored config of the kind."""
        self._wanted.set()

    async def run(self) -> None:
        await repeat(
            self._wait_for_demand,
            self.checkpoint,
            self._process,
            is_over=lambda: self._is_stopping or self._is_needed,
        )
        if self._is_needed:
            await super().run()

    async def _wait_for_demand(self) -> None:
        self._is_needed = await self._is_wanted()
        if not self._is_needed:
            await self._wanted.wait(POLL_SECONDS)

    async def finish(self) -> None:
        if self.role.is_known:
            await super().finish()

    async def _is_wanted(self) -> bool:
        # A tenant that was copied to this store has config but no checkpoint.
        return (
            self.kind in self._config.seen or await self._checkpoints.position(self.checkpoint) > 0
        )
