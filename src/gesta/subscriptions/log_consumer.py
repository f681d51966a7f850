"""A durable consumer of the log with its own checkpoint, active in one process at a time.

The base of handlers (`handlers.py`), event webhooks (`status_webhooks.py`) and alerts
(`alerts.py`).
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
from gesta.domain.status_events import Event, changed_status, status_event
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
#: Position → the status that an event reports, and its metadata.
Words = dict[int, tuple[str, Meta]]

#: Prefix of the names of the engine's own consumers; a program's subscription must not have it.
OWN = "gesta/"
#: Events of one read. The checkpoint moves at least this often.
BATCH = 200
#: Whole streams with payloads, so that no more of them are in memory at the same time.
STREAMS_AT_ONCE = 100
POLL_SECONDS = 1.0
#: Back-off after a handler raised; it doubles with every failure of the same event.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
#: `settle` in tests gives up after so many calls of one event: a handler may always raise.
TRIES_TO_SETTLE = 10


@dataclass(frozen=True, kw_only=True)
class Log:
    """What a consumer needs to read the log and to keep its checkpoint and role."""

    events: EventStore
    checkpoints: Checkpoints
    leases: Leases
    process: Process


class LogConsumer(ABC):
    def __init__(self, name: str, since: Since, log: Log) -> None:
        self.name, self.checkpoint, self._since = name, checkpoint_of(name), since
        self._events, self._checkpoints = log.events, log.checkpoints
        self._process = log.process
        self._runtime, self._telemetry = log.process.runtime, log.process.telemetry
        self.role = Role(
            self.checkpoint, owner=log.process.owner, leases=log.leases, runtime=self._runtime
        )
        self._is_begun = False
        #: The stored checkpoint (None: to be read), and the position up to which all is delivered.
        self._position: int | None = None
        self._delivered = 0
        self._quarantined: list[Quarantined] = []
        self._failures = 0
        self._again_ms: int | None = None
        self.is_calling = False
        self._is_stopping = False
        self._ended = Signal(self._runtime)

    #: Whether it claims its role only when it is first needed.
    starts_on_demand = False

    @abstractmethod
    async def step(self) -> int:
        """Read and deliver one batch; returns how many events of the log it had."""

    @property
    def next_due_ms(self) -> int | None:
        """When the handler is called again after it raised, for tests with a manual clock."""
        return self._again_ms if self._failures < TRIES_TO_SETTLE else None

    async def run(self) -> None:
        """Consume until stopped, while the role is ours."""
        await repeat(
            self._step_if_leader,
            self.checkpoint,
            self._process,
            outage=self._forget_position,
            is_over=lambda: self._is_stopping,
        )
        await self.finish()

    async def _step_if_leader(self) -> None:
        if not self._is_begun:
            # The checkpoint exists from here on, whichever process has the role.
            await self._begin()
            self._is_begun = True
        if not await self.role.is_ours():
            self._forget_position()
            await sleep(self._runtime, RENEWAL_SECONDS)
        elif await self.step() == 0:
            await self._events.changed(POLL_SECONDS)

    def _forget_position(self) -> None:
        self._position = None

    def stop(self) -> None:
        """Make no further call; a running call may finish."""
        self._is_stopping = True

    async def drain(self, until: float) -> None:
        """Wait for a running call, until a time of the monotonic clock."""
        while self.is_calling and (left := until - self._runtime.monotonic()) > 0:
            await self._ended.wait(left)

    async def finish(self) -> None:
        """Store the checkpoint and give up the role, so that another process continues at once."""
        with suppress(StoreError):
            await self._move()
        await self.role.give_up()

    async def _begin(self) -> int:
        """The checkpoint; it is stored immediately the first time."""
        if self._position is None:
            start = 0 if self._since == "beginning" else await self._events.end()
            self._position = self._delivered = await self._checkpoints.begin(self.checkpoint, start)
            self._quarantined.clear()
        return self._position

    async def _move(self) -> None:
        if self._position is None or self._delivered <= self._position:
            return
        move = Move(self.checkpoint, self._position, self._delivered)
        self._position = (
            self._delivered if await self._checkpoints.move([move], self._quarantined) else None
        )
        self._quarantined.clear()

    async def _pass(self, batch: Sequence[Recorded]) -> int:
        """Move the checkpoint behind a batch that was delivered as a whole; its length."""
        if batch:
            self._delivered = batch[-1].position
        await self._move()
        return len(batch)

    def _words(self, batch: Sequence[Recorded], covers: Callable[[str], bool]) -> Words:
        """The events of the batch that report a status, of the flows that `covers` accepts."""
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
                self._quarantine(recorded, "", error)
                continue
            if word is not None:
                words[recorded.position] = word, meta
        return words

    async def _status_events(self, batch: Sequence[Recorded], words: Words) -> dict[int, Event]:
        """Position → the event to deliver."""
        names = list(
            dict.fromkeys(recorded.stream for recorded in batch if recorded.position in words)
        )
        events: dict[int, Event] = {}
        for start in range(0, len(names), STREAMS_AT_ONCE):
            streams: dict[str, list[Recorded]] = {
                name: [] for name in names[start : start + STREAMS_AT_ONCE]
            }
            for recorded in await self._events.read([(name, 0) for name in streams]):
                streams[recorded.stream].append(recorded)
            for stream in streams.values():
                # Retention removes a stream only after every consumer has passed it.
                events |= self._status_events_of(stream, words) if stream else {}
        return events

    def _status_events_of(
        self, stream: list[Recorded], words: Mapping[int, tuple[str, Meta]]
    ) -> dict[int, Event]:
        """Fold a stream and find the events that changed the status."""
        events: dict[int, Event] = {}
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
                        self._quarantine(rest, words[rest.position][1].tenant, error)
                break
            if recorded.position in words:
                word, meta = words[recorded.position]
                if changed_status(word, before) and not self._is_silent(view.state):
                    events[recorded.position] = status_event(
                        word, view.state, meta, recorded.position, recorded.id, recorded.type
                    )
        return events

    def _is_silent(self, _state: State) -> bool:
        """Whether no event of a request is delivered."""
        return False

    def _quarantine(self, recorded: Recorded, tenant: str, error: Exception) -> None:
        # The projector counts the event; this logs which consumer skipped it.
        self._telemetry.not_delivered(self.name, recorded.stream, recorded.version, error)
        name = type(error.__cause__ or error).__name__
        self._quarantined.append(
            Quarantined(
                "event", tenant, recorded.stream, recorded.version, name, self._runtime.now_ms()
            )
        )

    async def _deliver(
        self, position: int, request_id: str, notify: Callable[[], Awaitable[None]]
    ) -> bool:
        """Call until it does not raise; False: stopped, or another process has the role."""
        while self.role.was_ours and self._position is not None and not self._is_stopping:
            self.is_calling = True
            try:
                await notify()
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # The handler awaited something that was cancelled: a failure like any other.
                await self._failed(position, request_id, error)
            except Exception as error:  # noqa: BLE001 -- repeated until it does not raise
                await self._failed(position, request_id, error)
            else:
                self._failures, self._again_ms = 0, None
                return True
            finally:
                self.is_calling = False
                self._ended.set()
        return False

    async def _failed(self, position: int, request_id: str, error: BaseException) -> None:
        self.is_calling = False
        pause = min(PAUSE_SECONDS * 2**self._failures, PAUSE_SECONDS_MAX)
        self._failures += 1
        now = self._runtime.now_ms()
        text = scrub(f"{type(error).__name__}: {error}")
        self._telemetry.handler_failed(self.name, request_id, text, self._failures, pause)
        self._again_ms = now + round(pause * 1000)
        with suppress(StoreError):
            # Earlier deliveries are not repeated, whatever happens to this one.
            await self._move()
            await self._checkpoints.note_error(self.checkpoint, f"position {position}: {text}", now)
        await sleep(self._runtime, pause)
