"""Calls the handlers of `@engine.on(...)`: durable, in order, at least once.

Each handler has its own checkpoint, so a slow or failing one does not delay the others.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from gesta.domain.ids import covers, pattern_error
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
    """A handler and its events. Raises BadSubscription."""

    name: str
    #: A flow, `kind.*` or `*`.
    flow: str
    #: Empty: every status.
    statuses: tuple[str, ...]
    handler: Handler
    since: Since = "now"

    def __post_init__(self) -> None:
        error = _error(self)
        if error:
            raise BadSubscription(str(self.name), error)

    @property
    def checkpoint(self) -> str:
        return checkpoint_of(self.name)

    def wants(self, flow: str, word: str) -> bool:
        return (not self.statuses or word in self.statuses) and self.covers(flow)

    def covers(self, flow: str) -> bool:
        return covers(self.flow, flow)


def _error(asked: Subscription) -> str:
    if (
        not isinstance(asked.name, str)
        or not asked.name
        or len(asked.name) > 100
        or not asked.name.isprintable()
    ):
        return (
            "name= must have 1 to 100 characters; never change it, because gesta stores the"
            " checkpoint under it"
        )
    if asked.name.startswith(OWN):
        return f"name= must not begin with {OWN!r}: the engine's own checkpoints use this prefix"
    if error := pattern_error(asked.flow):
        return error
    for status in asked.statuses:
        if status not in WORDS:
            return f"{status!r} is not a status; known: {', '.join(WORDS)}"
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
    def __init__(self, subscription: Subscription, log: Log) -> None:
        super().__init__(subscription.name, subscription.since, log)
        self.subscription = subscription

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        words = self._words(batch, self.subscription.covers)
        statuses = self.subscription.statuses
        events = await self._status_events(
            batch, {at: one for at, one in words.items() if not statuses or one[0] in statuses}
        )
        for recorded in batch:
            event = events.get(recorded.position)
            if event is not None and not await self._call(event):
                await self._move()
                return 0
            self._delivered = recorded.position
        await self._move()
        return len(batch)

    async def _call(self, event: Event) -> bool:
        async def call() -> None:
            await self.subscription.handler(event)

        if not await self._deliver(event.position, event.request_id, call):
            return False
        self._telemetry.handled(self.name)
        return True


class Subscriptions:
    """The consumers of a process: its handlers and the engine's own."""

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
        if not self.subscribers:
            return {}
        consumers = {one.checkpoint: one.run for one in self.subscribers}
        return {**consumers, "subscriptions": self._keep_roles}

    def roles(self) -> dict[str, Role]:
        """The roles that are claimed at the start."""
        return {one.checkpoint: one.role for one in self.subscribers if not one.starts_on_demand}

    async def _keep_roles(self) -> None:
        """Renew the roles while a slow handler runs."""
        await repeat(self._renew_roles, "subscriptions", self._process)

    async def _renew_roles(self) -> None:
        for one in self.subscribers:
            if one.role.was_ours:
                try:
                    await one.role.is_ours()
                except StoreError as error:
                    self._process.telemetry.store_failed(one.checkpoint, error)
        await sleep(self._process.runtime, RENEWAL_SECONDS)
