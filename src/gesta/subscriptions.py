"""Beside the road: the user's own handlers are told what became of requests. Durable, in order, at least once.

Receives events from the event store; hands them to the functions under `@engine.on(...)`. Each has a checkpoint of its own, so a
slow or broken one delays nobody else.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from gesta.current import apply_event
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.events import Meta
from gesta.domain.ids import FLOW, covers
from gesta.domain.told import WORDS, Event, is_news, told, word_of
from gesta.errors import BadSubscription, StoreError
from gesta.event_store import EventStore, Recorded
from gesta.projector.folding import CONFIG
from gesta.role import RENEWAL_SECONDS, Role
from gesta.runtime import Runtime, Signal, sleep
from gesta.scrub import scrub
from gesta.telemetry import Telemetry
from gesta.views import Move, Parked, View, Views

Handler = Callable[[Event], Awaitable[None]]
Since = Literal["now", "beginning"]

#: Events read at once. The checkpoint moves at least this often.
BATCH = 200
POLL_SECONDS = 1.0
#: After a handler raised: the same event again, twice as late each time.
PAUSE_SECONDS = 1.0
PAUSE_SECONDS_MAX = 60.0
#: A test that settles waits for so many tries of one event; a handler that always raises must not stop the test for ever.
TRIES_TO_SETTLE = 10


@dataclass(frozen=True)
class Subscription:
    """What one handler listens for. Raises BadSubscription, saying what is wrong with it."""

    name: str
    #: A flow, `kind.*` for all of a kind, or `*`.
    flow: str
    #: Empty: every one.
    statuses: tuple[str, ...]
    handler: Handler
    since: Since = "now"

    def __post_init__(self) -> None:
        fault = _fault(self)
        if fault:
            raise BadSubscription(str(self.name), fault)

    @property
    def checkpoint(self) -> str:
        return checkpoint_of(self.name)

    def wants(self, flow: str, word: str) -> bool:
        return (not self.statuses or word in self.statuses) and self.covers(flow)

    def covers(self, flow: str) -> bool:
        return covers(self.flow, flow)


def checkpoint_of(name: str) -> str:
    """What a subscription's checkpoint and its role are called."""
    return f"subscription/{name}"


def _fault(asked: Subscription) -> str:
    if not isinstance(asked.name, str) or not asked.name or len(asked.name) > 100 or not asked.name.isprintable():
        return "name= is a text of 1 to 100 characters that stays the same for ever: its place in the log is kept under it"
    if not isinstance(asked.flow, str) or not (asked.flow == "*" or FLOW.fullmatch(asked.flow.removesuffix(".*") + ".x")):
        return f"{asked.flow!r} is no flow; write 'kind.name', 'kind.*' for all of a kind, or '*' for all"
    if not asked.flow.endswith("*") and not FLOW.fullmatch(asked.flow):
        return (
            f"{asked.flow!r} is no flow; flows have two parts or more, e.g. 'billing.receipt'; '{asked.flow}.*' is all of a kind"
        )
    for status in asked.statuses:
        if status not in WORDS:
            return f"{status!r} is no status; known: {', '.join(WORDS)}"
    if asked.since not in ("now", "beginning"):
        return f"since={asked.since!r}: write 'now' or 'beginning'"
    if not inspect.iscoroutinefunction(asked.handler):
        return "the handler must be an `async def` function"
    try:
        inspect.signature(asked.handler).bind(object())
    except TypeError:
        return "the handler must take one parameter, the event"
    return ""


class Subscriber:
    """One subscription at work."""

    def __init__(
        self, subscription: Subscription, events: EventStore, views: Views, runtime: Runtime, telemetry: Telemetry, owner: str
    ) -> None:
        self.subscription = subscription
        self._events, self._views, self._runtime, self._telemetry = events, views, runtime, telemetry
        self.role = Role(subscription.checkpoint, owner, views, runtime)
        #: Where the checkpoint stands, and how far the handler has been told. None: to be read.
        self._position: int | None = None
        self._told = 0
        self._parked: list[Parked] = []
        self._failures = 0
        self._again_ms: int | None = None
        #: Whether the handler is at work right now.
        self.is_telling = False
        self._is_stopping = False
        self._ended = Signal(runtime)

    @property
    def next_due_ms(self) -> int | None:
        """When an event is told again after its handler raised, for tests that own the clock."""
        return self._again_ms if self._failures < TRIES_TO_SETTLE else None

    async def run(self) -> None:
        """Tell until stopped, while the role is ours."""
        has_begun = False
        while not self._is_stopping:
            try:
                if not has_begun:
                    # Whoever has the role: from here on nothing may be missed.
                    await self._begin()
                    has_begun = True
                if not await self.role.is_ours():
                    self._position = None
                    await sleep(self._runtime, RENEWAL_SECONDS)
                elif await self.step() == 0:
                    await self._events.changed(POLL_SECONDS)
            except StoreError as error:
                self._telemetry.store_failed(self.subscription.checkpoint, error)
                self._position = None
                await sleep(self._runtime, POLL_SECONDS)
        await self.finish()

    def stop(self) -> None:
        """Call the handler no more; one that is at work may come to its end."""
        self._is_stopping = True

    async def drain(self, until: float) -> None:
        """Wait for a handler that is at work, until a moment of the monotonic clock."""
        while self.is_telling and (left := until - self._runtime.monotonic()) > 0:
            await self._ended.wait(left)

    async def finish(self) -> None:
        """What the handler has been told is not told again, and another process may tell the rest at once."""
        with suppress(StoreError):
            await self._move()
        await self.role.give_up()

    async def step(self) -> int:
        """Tell one batch; how many events of the log it had."""
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        news = await self._news(batch)
        for recorded in batch:
            event = news.get(recorded.position)
            if event is not None and not await self._tell(event):
                # Stopped, or another process has the role by now.
                await self._move()
                return 0
            self._told = recorded.position
        await self._move()
        return len(batch)

    async def _begin(self) -> int:
        """Where we stand. The first time ever the beginning is written down at once."""
        if self._position is None:
            start = 0 if self.subscription.since == "beginning" else await self._events.end()
            self._position = self._told = await self._views.begin(self.subscription.checkpoint, start)
            self._parked.clear()
        return self._position

    async def _move(self) -> None:
        if self._position is None or self._told <= self._position:
            return
        move = Move(self.subscription.checkpoint, self._position, self._told)
        self._position = self._told if await self._views.save([], self._parked, move) else None
        self._parked.clear()

    async def _news(self, batch: Sequence[Recorded]) -> dict[int, Event]:
        """What of the batch is to be told, by position. One call reads the streams of all that may be."""
        words: dict[int, tuple[str, Meta]] = {}
        streams: dict[str, list[Recorded]] = {}
        for recorded in batch:
            try:
                meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
                if meta.flow == CONFIG or not self.subscription.covers(meta.flow):
                    continue
                known = recorded.known
                word = word_of(event_types(meta.flow).decode(recorded.type, recorded.data) if known is None else known.event)
            except ValueError as error:
                self._park(recorded, "", error)
                continue
            if word is not None and self.subscription.wants(meta.flow, word):
                words[recorded.position] = word, meta
                streams[recorded.stream] = []
        for recorded in await self._events.read([(stream, 0) for stream in streams]) if streams else ():
            streams[recorded.stream].append(recorded)
        news: dict[int, Event] = {}
        for stream in streams.values():
            # One that is gone meanwhile has nothing to tell: everybody had passed it.
            news |= self._news_of(stream, words) if stream else {}
        return news

    def _news_of(self, stream: list[Recorded], words: Mapping[int, tuple[str, Meta]]) -> dict[int, Event]:
        """Fold a stream and see which of its events changed something."""
        news: dict[int, Event] = {}
        view: View | None = None
        wanted = max(recorded.position for recorded in stream if recorded.position in words)
        flow = next(words[recorded.position][1].flow for recorded in stream if recorded.position in words)
        for recorded in stream:
            if recorded.position > wanted:
                break
            before = None if view is None else view.state
            try:
                view = apply_event(view, recorded, flow)
            except Exception as error:  # noqa: BLE001 -- whatever is wrong with one request, the others must be told
                for rest in stream:
                    if rest.position >= recorded.position and rest.position in words:
                        self._park(rest, words[rest.position][1].tenant, error)
                break
            if recorded.position in words:
                word, meta = words[recorded.position]
                if is_news(word, before):
                    news[recorded.position] = told(word, view.state, meta, recorded.position, recorded.id, recorded.type)
        return news

    def _park(self, recorded: Recorded, tenant: str, error: Exception) -> None:
        # The projector meets it, too, and counts it: this one only says who was not told.
        self._telemetry.not_told(self.subscription.name, recorded.stream, recorded.version, error)
        name = type(error.__cause__ or error).__name__
        self._parked.append(Parked("event", tenant, recorded.stream, recorded.version, name, self._runtime.now_ms()))

    async def _tell(self, event: Event) -> bool:
        """Until the handler has taken it; False when that is not ours to do any more."""
        name = self.subscription.name
        while self.role.was_ours and self._position is not None and not self._is_stopping:
            self.is_telling = True
            try:
                await self.subscription.handler(event)
            except Exception as error:  # noqa: BLE001 -- a user's code; it is called again until it does not raise
                await self._failed(event, error)
            else:
                self._failures, self._again_ms = 0, None
                self._telemetry.told(name)
                return True
            finally:
                self.is_telling = False
                self._ended.set()
        return False

    async def _failed(self, event: Event, error: Exception) -> None:
        self.is_telling = False
        pause = min(PAUSE_SECONDS * 2**self._failures, PAUSE_SECONDS_MAX)
        self._failures += 1
        now = self._runtime.now_ms()
        text = scrub(f"{type(error).__name__}: {error}")
        self._telemetry.handler_failed(self.subscription.name, event.request_id, text, self._failures, pause)
        self._again_ms = now + round(pause * 1000)
        with suppress(StoreError):
            # What was told before stays told, whatever becomes of this one.
            await self._move()
            await self._views.stuck(self.subscription.checkpoint, f"position {event.position}: {text}", now)
        await sleep(self._runtime, pause)


class Subscriptions:
    """All of a process's."""

    def __init__(
        self,
        asked: Sequence[Subscription],
        events: EventStore,
        views: Views,
        runtime: Runtime,
        telemetry: Telemetry,
        owner: str,
    ) -> None:
        self._runtime, self._telemetry = runtime, telemetry
        self.subscribers = [Subscriber(one, events, views, runtime, telemetry, owner) for one in asked]

    def stop(self) -> None:
        for one in self.subscribers:
            one.stop()

    async def drain(self, until: float) -> None:
        for one in self.subscribers:
            await one.drain(until)

    async def finish(self) -> None:
        for one in self.subscribers:
            await one.finish()

    def stations(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What to keep running, by name."""
        if not self.subscribers:
            return {}
        telling = {one.subscription.checkpoint: one.run for one in self.subscribers}
        return {**telling, "subscriptions": self._keep_roles}

    def roles(self) -> dict[str, Role]:
        """The role of each station that has one."""
        return {one.subscription.checkpoint: one.role for one in self.subscribers}

    async def _keep_roles(self) -> None:
        """A handler may take its time, and its role must not go to another process meanwhile."""
        while True:
            for one in self.subscribers:
                if one.role.was_ours:
                    try:
                        await one.role.is_ours()
                    except StoreError as error:
                        self._telemetry.store_failed(one.subscription.checkpoint, error)
            await sleep(self._runtime, RENEWAL_SECONDS)
