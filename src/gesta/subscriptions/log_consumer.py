"""Beside the road: whoever follows the log from a checkpoint of its own, one process at a time, and
goes on where it stood.

What all of them share: handlers of `@engine.on` (subscriptions.py), tenants' webhooks (telling.py),
alerts (alerts.py).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from gesta.domain.codec import decode_meta, event_types
from gesta.domain.events import Meta
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.status_events import Event, changed_status, told
from gesta.domain.stream_names import checkpoint_of
from gesta.errors import StoreError
from gesta.ports.checkpoints import Checkpoints, Move
from gesta.ports.event_store import EventStore, Recorded
from gesta.ports.leases import RENEWAL_SECONDS, Leases, Role
from gesta.ports.read_model import Quarantined, View
from gesta.projector.batch_fold import CONFIG
from gesta.requests.loader import apply_event
from gesta.runtime.clock import Signal, is_cancelled, sleep
from gesta.runtime.component import Process, repeat
from gesta.runtime.redaction import scrub

Since = Literal["now", "beginning"]
#: Position → the word that an event may be told under, and its metadata.
Words = dict[int, tuple[str, Meta]]

#: How the names of the engine's own followers begin; no program's subscription may be called so.
OWN = "gesta/"
#: Events read at once. The checkpoint moves at least this often.
BATCH = 200
#: Whole streams, payloads and all: more than these need not be in memory at a time.
STREAMS_AT_ONCE = 100
POLL_SECONDS = 1.0
#: After a handler raised: the same event again, twice as late each time.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
#: A test that settles waits for so many tries of one event; a handler that always raises must not
#: stop the test for ever.
TRIES_TO_SETTLE = 10


@dataclass(frozen=True, kw_only=True)
class Log:
    """What consumers read, where their checkpoints are, and for whom."""

    events: EventStore
    checkpoints: Checkpoints
    leases: Leases
    process: Process


class LogConsumer(ABC):
    """One that follows. What it does with what it reads is `hand_over`'s business."""

    def __init__(self, name: str, since: Since, log: Log) -> None:
        self.name, self.checkpoint, self._since = name, checkpoint_of(name), since
        self._events, self._checkpoints = log.events, log.checkpoints
        self._process = log.process
        self._runtime, self._telemetry = log.process.runtime, log.process.telemetry
        self.role = Role(
            self.checkpoint, owner=log.process.owner, leases=log.leases, runtime=self._runtime
        )
        self._has_begun = False
        #: Where the checkpoint stands, and how far everything has been told. None: to be read.
        self._position: int | None = None
        self._told = 0
        self._quarantined: list[Quarantined] = []
        self._failures = 0
        self._again_ms: int | None = None
        #: Whether the handler is at work right now.
        self.is_telling = False
        self._is_stopping = False
        self._ended = Signal(self._runtime)

    #: Whether it stands aside until somebody wants it, and plays its role only then.
    waits_to_be_wanted = False

    @abstractmethod
    async def step(self) -> int:
        """Read one batch and tell it; how many events of the log it had."""

    @property
    def next_due_ms(self) -> int | None:
        """When an event is told again after its handler raised, for tests that own the clock."""
        return self._again_ms if self._failures < TRIES_TO_SETTLE else None

    async def run(self) -> None:
        """Consume until stopped, while the role is ours."""
        await repeat(
            self._turn,
            self.checkpoint,
            self._process,
            outage=self._lose_position,
            is_over=lambda: self._is_stopping,
        )
        await self.finish()

    async def _turn(self) -> None:
        if not self._has_begun:
            # Whichever process has the role: from here on nothing may be missed.
            await self._begin()
            self._has_begun = True
        if not await self.role.is_ours():
            self._lose_position()
            await sleep(self._runtime, RENEWAL_SECONDS)
        elif await self.step() == 0:
            await self._events.changed(POLL_SECONDS)

    def _lose_position(self) -> None:
        self._position = None

    def stop(self) -> None:
        """Call the handler no more; one that is at work may come to its end."""
        self._is_stopping = True

    async def drain(self, until: float) -> None:
        """Wait for a handler that is at work, until a moment of the monotonic clock."""
        while self.is_telling and (left := until - self._runtime.monotonic()) > 0:
            await self._ended.wait(left)

    async def finish(self) -> None:
        """What the handler has been told is not told again, and another process may tell the rest
        at once.
        """
        with suppress(StoreError):
            await self._move()
        await self.role.give_up()

    async def _begin(self) -> int:
        """Where we stand. The first time ever the beginning is written down at once."""
        if self._position is None:
            start = 0 if self._since == "beginning" else await self._events.end()
            self._position = self._told = await self._checkpoints.begin(self.checkpoint, start)
            self._quarantined.clear()
        return self._position

    async def _move(self) -> None:
        if self._position is None or self._told <= self._position:
            return
        move = Move(self.checkpoint, self._position, self._told)
        self._position = (
            self._told if await self._checkpoints.move([move], self._quarantined) else None
        )
        self._quarantined.clear()

    def _words(self, batch: Sequence[Recorded], covers: Callable[[str], bool]) -> Words:
        """The events of the batch that may be told at all, of the flows that are meant."""
        words: Words = {}
        for recorded in batch:
            try:
                known = recorded.known
                meta = decode_meta(recorded.meta) if known is None else known.meta
                if meta.flow == CONFIG or not covers(meta.flow):
                    continue
                word = lifecycle_of(meta.flow).word_of(
                    event_types(meta.flow).decode(recorded.type, recorded.data)
                    if known is None
                    else known.event
                )
            except ValueError as error:
                self._park(recorded, "", error)
                continue
            if word is not None:
                words[recorded.position] = word, meta
        return words

    async def _news(self, batch: Sequence[Recorded], words: Words) -> dict[int, Event]:
        """What of these is to be told, by position. One call reads the streams of many that may
        be.
        """
        names = list(
            dict.fromkeys(recorded.stream for recorded in batch if recorded.position in words)
        )
        news: dict[int, Event] = {}
        for start in range(0, len(names), STREAMS_AT_ONCE):
            streams: dict[str, list[Recorded]] = {
                name: [] for name in names[start : start + STREAMS_AT_ONCE]
            }
            for recorded in await self._events.read([(name, 0) for name in streams]):
                streams[recorded.stream].append(recorded)
            for stream in streams.values():
                # One that is gone meanwhile has nothing to tell: everybody had passed it.
                news |= self._news_of(stream, words) if stream else {}
        return news

    def _news_of(
        self, stream: list[Recorded], words: Mapping[int, tuple[str, Meta]]
    ) -> dict[int, Event]:
        """Fold a stream and see which of its events changed something."""
        news: dict[int, Event] = {}
        view: View | None = None
        wanted = max(recorded.position for recorded in stream if recorded.position in words)
        flow = next(
            words[recorded.position][1].flow for recorded in stream if recorded.position in words
        )
        for recorded in stream:
            if recorded.position > wanted:
                break
            before = None if view is None else view.state
            try:
                view = apply_event(view, recorded, flow)
            except Exception as error:  # noqa: BLE001 -- one request must not hold up the others
                for rest in stream:
                    if rest.position >= recorded.position and rest.position in words:
                        self._park(rest, words[rest.position][1].tenant, error)
                break
            if recorded.position in words:
                word, meta = words[recorded.position]
                if changed_status(word, before) and not self._is_silent(view.state):
                    news[recorded.position] = told(
                        word, view.state, meta, recorded.position, recorded.id, recorded.type
                    )
        return news

    def _is_silent(self, _state: State) -> bool:
        """Whether nothing of a request is told."""
        return False

    def _park(self, recorded: Recorded, tenant: str, error: Exception) -> None:
        # The projector meets it, too, and counts it: this one only says who was not told.
        self._telemetry.not_told(self.name, recorded.stream, recorded.version, error)
        name = type(error.__cause__ or error).__name__
        self._quarantined.append(
            Quarantined(
                "event", tenant, recorded.stream, recorded.version, name, self._runtime.now_ms()
            )
        )

    async def _insist(
        self, position: int, request_id: str, tell: Callable[[], Awaitable[None]]
    ) -> bool:
        """Until it has been taken; False when that is not ours to do any more."""
        while self.role.was_ours and self._position is not None and not self._is_stopping:
            self.is_telling = True
            try:
                await tell()
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # A handler may await something of its own that was cancelled, and then this is as
                # any other failure.
                await self._failed(position, request_id, error)
            except Exception as error:  # noqa: BLE001 -- it is tried again until it does not raise
                await self._failed(position, request_id, error)
            else:
                self._failures, self._again_ms = 0, None
                return True
            finally:
                self.is_telling = False
                self._ended.set()
        return False

    async def _failed(self, position: int, request_id: str, error: BaseException) -> None:
        self.is_telling = False
        pause = min(PAUSE_SECONDS * 2**self._failures, PAUSE_SECONDS_MAX)
        self._failures += 1
        now = self._runtime.now_ms()
        text = scrub(f"{type(error).__name__}: {error}")
        self._telemetry.handler_failed(self.name, request_id, text, self._failures, pause)
        self._again_ms = now + round(pause * 1000)
        with suppress(StoreError):
            # What was told before stays told, whatever becomes of this one.
            await self._move()
            await self._checkpoints.note_error(self.checkpoint, f"position {position}: {text}", now)
        await sleep(self._runtime, pause)
