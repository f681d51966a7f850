"""How long the oldest event has waited in the boundary queue, as far as gesta knows.

SQS does not say. A receive would show when a message was sent, but it uses up one of the message's
three tries. Instead, consumers note when an old message was sent, and the sweeper notes since when
events wait while no worker runs. The note is a checkpoint in epoch milliseconds, which is beyond
every position of the log.
"""

from gesta.domain.event_message import AGE_ALARM_SECONDS
from gesta.ports.boundary_queue import BoundaryCounts
from gesta.ports.checkpoints import Checkpoints, Move
from gesta.runtime.clock import Runtime

CHECKPOINT = "inbound/oldest"
#: A consumer writes at most once in this time, and only about messages that are old.
PERIOD_SECONDS = 60.0
OLD_SECONDS = AGE_ALARM_SECONDS / 2


class QueueAge:
    def __init__(self, checkpoints: Checkpoints, runtime: Runtime) -> None:
        self._checkpoints, self._runtime = checkpoints, runtime
        self._noted_at = float("-inf")
        #: When the oldest message since the last note was sent.
        self._oldest_ms: int | None = None

    async def received(self, sent_ms: int) -> None:
        """A consumer has received a message that was sent then."""
        oldest = sent_ms if self._oldest_ms is None else min(sent_ms, self._oldest_ms)
        now = self._runtime.monotonic()
        if now - self._noted_at < PERIOD_SECONDS:
            self._oldest_ms = oldest
            return
        self._noted_at, self._oldest_ms = now, None
        if self._runtime.now_ms() - oldest >= OLD_SECONDS * 1000:
            await self._note(oldest)
        elif await self._checkpoints.position(CHECKPOINT):
            # Also the note of another consumer, which may have stopped since.
            await self._checkpoints.forget(CHECKPOINT)

    async def watch(self, counts: BoundaryCounts, *, has_workers: bool) -> int | None:
        """As `oldest_ms`. Notes that events wait for a worker, and removes a note that is over."""
        oldest = await self._checkpoints.position(CHECKPOINT)
        if not counts.waiting and not counts.in_flight:
            if oldest:
                await self._checkpoints.forget(CHECKPOINT)
            return None
        if not oldest and counts.waiting and not has_workers:
            oldest = await self._checkpoints.begin(CHECKPOINT, self._runtime.now_ms())
        return oldest or None

    async def oldest_ms(self, counts: BoundaryCounts) -> int | None:
        """When the oldest waiting event was sent, at the latest; None: nothing old is known."""
        if not counts.waiting and not counts.in_flight:
            return None
        return await self._checkpoints.position(CHECKPOINT) or None

    async def _note(self, oldest_ms: int) -> None:
        before = await self._checkpoints.begin(CHECKPOINT, oldest_ms)
        if before != oldest_ms:
            # Where another consumer has just noted something else, its note stands.
            await self._checkpoints.move([Move(CHECKPOINT, before, oldest_ms)])
