"""Beside the road: the user's own handlers are told what became of requests.

Durable, in order, at least once.

Receives events from the event store; hands them to the functions under `@engine.on(...)`. Each has
a checkpoint of its own, so a
slow or broken one delays nobody else.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gesta.domain.ids import covers, pattern_fault
from gesta.domain.status_events import WORDS, Event
from gesta.domain.stream_names import checkpoint_of
from gesta.errors import BadSubscription, StoreError
from gesta.ports.leases import RENEWAL_SECONDS, Role
from gesta.runtime.clock import sleep
from gesta.runtime.component import repeat
from gesta.subscriptions.log_consumer import BATCH, OWN, Log, LogConsumer, Since

__all__ = ["Handler", "Since", "Subscriber", "Subscription", "Subscriptions"]

Handler = Callable[[Event], Awaitable[None]]


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


def _fault(asked: Subscription) -> str:
    if (
        not isinstance(asked.name, str)
        or not asked.name
        or len(asked.name) > 100
        or not asked.name.isprintable()
    ):
        return (
            "name= is a text of 1 to 100 characters that stays the same for ever: its place in the"
            " log is kept under it"
        )
    if asked.name.startswith(OWN):
        return (
            f"name= must not begin with {OWN!r}: the engine's own places in the log are called so"
        )
    if fault := pattern_fault(asked.flow):
        return fault
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


class Subscriber(LogConsumer):
    """One subscription at work."""

    def __init__(self, subscription: Subscription, log: Log) -> None:
        super().__init__(subscription.name, subscription.since, log)
        self.subscription = subscription

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        words = self._words(batch, self.subscription.covers)
        statuses = self.subscription.statuses
        news = await self._news(
            batch, {at: one for at, one in words.items() if not statuses or one[0] in statuses}
        )
        for recorded in batch:
            event = news.get(recorded.position)
            if event is not None and not await self._tell(event):
                # Stopped, or another process has the role by now.
                await self._move()
                return 0
            self._told = recorded.position
        await self._move()
        return len(batch)

    async def _tell(self, event: Event) -> bool:
        async def call() -> None:
            await self.subscription.handler(event)

        if not await self._insist(event.position, event.request_id, call):
            return False
        self._telemetry.told(self.name)
        return True


class Subscriptions:
    """All of a process's, and the engine's own followers beside them."""

    def __init__(self, asked: Sequence[Subscription], own: Sequence[LogConsumer], log: Log) -> None:
        self._process = log.process
        self.subscribers: list[LogConsumer] = [*(Subscriber(one, log) for one in asked), *own]

    def stop(self) -> None:
        for one in self.subscribers:
            one.stop()

    async def drain(self, until: float) -> None:
        for one in self.subscribers:
            await one.drain(until)

    async def finish(self) -> None:
        for one in self.subscribers:
            await one.finish()

    def components(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What to keep running, by name."""
        if not self.subscribers:
            return {}
        telling = {one.checkpoint: one.run for one in self.subscribers}
        return {**telling, "subscriptions": self._keep_roles}

    def roles(self) -> dict[str, Role]:
        """The role of each station that has one from its start on."""
        return {one.checkpoint: one.role for one in self.subscribers if not one.waits_to_be_wanted}

    async def _keep_roles(self) -> None:
        """A handler may take its time, and its role must not go to another process meanwhile."""
        await repeat(self._renew_roles, "subscriptions", self._process)

    async def _renew_roles(self) -> None:
        for one in self.subscribers:
            if one.role.was_ours:
                try:
                    await one.role.is_ours()
                except StoreError as error:
                    self._process.telemetry.store_failed(one.checkpoint, error)
        await sleep(self._process.runtime, RENEWAL_SECONDS)
