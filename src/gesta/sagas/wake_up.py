"""Wakes sagas: when the request of a step has ended, the saga gets its next run.

A durable consumer of the log. It follows the requests that sagas submitted, by the source that
every event of theirs names.
"""

import asyncio
from collections.abc import Mapping, Sequence

from gesta.domain.codec import decode_meta, event_types
from gesta.domain.commands import Rules
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.saga.lifecycle import Wake
from gesta.domain.status_events import ATTEMPT_FAILED, CREATED, OF_SAGA
from gesta.errors import Fenced
from gesta.ports.event_store import Recorded
from gesta.ports.read_model import Key, View
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, no_job
from gesta.runtime.clock import spawn
from gesta.subscriptions.log_consumer import OWN, Log, LogConsumer

#: Events of one read; the sagas that they wake are loaded together.
BATCH = 500
#: What a request can report without having ended.
NO_ENDS = (
    None,
    CREATED,
    ATTEMPT_FAILED,
    "unknown",
    "delivered",
    "bounced",
    "complained",
    "conflicted",
)


class WakeUps(LogConsumer):
    def __init__(self, *, log: Log, loader: Loader, recorder: Recorder) -> None:
        super().__init__(f"{OWN}sagas", "now", log)
        self._loader, self._recorder = loader, recorder
        self._has_checkpoint = False

    async def begin(self) -> None:
        """Store the checkpoint before the first step is started, so that no end is missed."""
        if not self._has_checkpoint:
            await self._checkpoints.begin(self.checkpoint, await self._events.end())
            self._has_checkpoint = True

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        wakes: dict[Key, list[Wake]] = {}
        for recorded in batch:
            if (found := _end_of_step(recorded)) is not None:
                wakes.setdefault(found[0], []).append(found[1])
        if wakes:
            first = next(iter(wakes))
            if not await self._deliver(batch[0].position, first[2], lambda: self._wake(wakes)):
                return 0
            self._telemetry.handled(self.name, len(wakes))
        return await self._pass(batch)

    async def _wake(self, wakes: Mapping[Key, Sequence[Wake]]) -> None:
        found, _ = await self._loader.load(list(wakes))
        # Together, so that they share a commit.
        tasks = [
            spawn(self._wake_one(view, wakes[key]), "gesta-saga") for key, view in found.items()
        ]
        errors = []
        for task in tasks:
            try:
                await task
            except asyncio.CancelledError:
                for rest in tasks:
                    rest.cancel()
                raise
            except Exception as error:  # noqa: BLE001 -- raised once all have ended
                errors.append(error)
        if errors:
            raise errors[0]

    async def _wake_one(self, view: View, wakes: Sequence[Wake]) -> None:
        try:
            for wake in wakes:
                applied = await self._recorder.apply(
                    view, wake, Rules(), no_job, causation_id=wake.request_id
                )
                view = applied.view
        except Fenced as fenced:
            if fenced.tenant is None:
                raise
            # The tenant was moved to another store, which wakes its sagas.


def _end_of_step(recorded: Recorded) -> tuple[Key, Wake] | None:
    """The saga to wake, if this is the end of a request that a saga submitted."""
    try:
        known = recorded.known
        meta = decode_meta(recorded.meta) if known is None else known.meta
        if not meta.source.startswith(OF_SAGA):
            return None
        event = (
            event_types(meta.flow).decode(recorded.type, recorded.data)
            if known is None
            else known.event
        )
    except ValueError:
        # The projector quarantines it.
        return None
    lifecycle = lifecycle_of(meta.flow)
    word = lifecycle.word_of(event)
    if word in NO_ENDS:
        return None
    flow, _, saga_id = meta.source.removeprefix(OF_SAGA).partition("/")
    return (flow, meta.tenant, saga_id), Wake(meta.request_id, word in lifecycle.success)
