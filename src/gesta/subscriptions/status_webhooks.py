"""Beside the road: tenants' own endpoints are told what became of their requests, by webhooks that
go the road themselves.

Receives events from the event store; hands `notification.webhook` requests to intake, one for each
event and each `webhook.subscription` of its
tenant that wants it: signed, retried and on record like any other. Their key is made of the
subscription's code and the event's id, so a
crash between the submit and the checkpoint makes no second one. What becomes of these requests is
told to nobody (domain/told.py).

One process at a time follows for all tenants, and none at all until a tenant subscribes for the
first time.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from gesta.domain.ids import KEY_LENGTH_MAX, covers
from gesta.domain.state import State
from gesta.domain.status_events import OWN_SOURCES, STATUS_WEBHOOKS, Event
from gesta.domain.stream_names import config_stream
from gesta.errors import Conflict, Fenced, InvalidRequest
from gesta.flows.flow import Flow, Payload
from gesta.flows.webhook import TOLD, Message, WebhookSubscription, endpoint_fault
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.requests.dead_letters import iso
from gesta.runtime.clock import Signal
from gesta.runtime.component import repeat
from gesta.subscriptions.log_consumer import OWN, POLL_SECONDS, Log, LogConsumer
from gesta.tenants.config import ConfigCache, Entity, TenantConfig

#: Events read at once; one submit carries what they come to.
BATCH = 500
#: Tenants whose subscriptions are kept at hand.
TENANTS_KEPT = 10_000


class Listening(msgspec.Struct, frozen=True):
    """A tenant's `webhook.subscription`, and why it tells nobody now, if that is so."""

    code: str
    flow: str
    statuses: tuple[str, ...]
    endpoint: str
    fault: str
    version: int

    def wants(self, flow: str, word: str) -> bool:
        return (not self.statuses or word in self.statuses) and covers(self.flow, flow)


def listening_of(config: TenantConfig, flow: Flow) -> list[Listening]:
    """What a tenant has subscribed, as its config is now."""
    return [_listening(one, config, flow) for one in config.entities() if one.kind == TOLD]


def _listening(entity: Entity, config: TenantConfig, flow: Flow) -> Listening:
    told = entity.body
    assert isinstance(told, WebhookSubscription)
    fault = endpoint_fault(told.endpoint, config, is_declared=bool(flow.declared))
    return Listening(
        entity.code, told.flow, tuple(told.statuses), told.endpoint, fault, entity.version
    )


class StatusWebhooks(LogConsumer):
    """Tells all tenants' endpoints."""

    waits_to_be_wanted = True

    def __init__(self, *, log: Log, flow: Flow, intake: Intake, config: ConfigCache) -> None:
        super().__init__(f"{OWN}webhooks", "now", log)
        self._flow, self._intake, self._config = flow, intake, config
        self._wanted, self._is_needed = Signal(self._runtime), False
        #: Tenant → version of its config, and what it has subscribed.
        self._known: dict[str, tuple[int, list[Listening]]] = {}
        #: Subscriptions that were said to be broken: once each.
        self._complained: set[tuple[str, str, int]] = set()

    async def want(self) -> None:
        """Somebody is about to subscribe: from here on nothing may be missed.

        A place that nobody needs after all costs some reading.
        """
        # Never 0, which is where a checkpoint stands that was never begun. What comes first on an
        # empty log is this very subscription.
        await self._checkpoints.begin(self.checkpoint, max(1, await self._events.end()))

    def wake(self) -> None:
        """Somebody has subscribed in this process: look now."""
        self._wanted.set()

    async def run(self) -> None:
        await repeat(
            self._wait_to_be_wanted,
            self.checkpoint,
            self._process,
            is_over=lambda: self._is_stopping or self._is_needed,
        )
        if self._is_needed:
            await super().run()

    async def _wait_to_be_wanted(self) -> None:
        self._is_needed = await self._is_wanted()
        if not self._is_needed:
            await self._wanted.wait(POLL_SECONDS)

    async def finish(self) -> None:
        if self.role.is_known:
            await super().finish()

    async def _is_wanted(self) -> bool:
        # A tenant that was copied here brings its config along, and no place in the log.
        return TOLD in self._config.seen or await self._checkpoints.position(self.checkpoint) > 0

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        words = {
            at: one
            for at, one in self._words(batch, _every).items()
            if one[1].source not in OWN_SOURCES
        }
        heard = await self._heard({meta.tenant for _, meta in words.values()})
        news = await self._news(
            batch,
            {
                at: (word, meta)
                for at, (word, meta) in words.items()
                if any(one.wants(meta.flow, word) for one in heard.get(meta.tenant, ()))
            },
        )
        requests = [
            request_of(event, one)
            for _, event in sorted(news.items())
            for one in heard[event.tenant]
            if one.wants(event.flow, event.status)
        ]
        if requests:
            first = news[min(news)]
            if not await self._insist(
                first.position, first.request_id, lambda: self._submit(requests)
            ):
                # Stopped, or another process has the role by now.
                return 0
            self._telemetry.told(self.name, len(requests))
        if batch:
            self._told = batch[-1].position
        await self._move()
        return len(batch)

    def _is_silent(self, state: State) -> bool:
        return state.source in OWN_SOURCES

    async def _heard(self, tenants: Collection[str]) -> Mapping[str, Sequence[Listening]]:
        """What each of these tenants has subscribed and can be told; one call reads what is new in
        their config.
        """
        if not tenants:
            return {}
        heads = [
            (config_stream(tenant), self._config.version(tenant)) for tenant in sorted(tenants)
        ]
        self._config.apply(await self._events.read(heads))
        found: dict[str, list[Listening]] = {}
        for tenant in tenants:
            version, known = self._config.version(tenant), self._known.get(tenant)
            if known is None or known[0] != version:
                if len(self._known) >= TENANTS_KEPT:
                    self._known.clear()
                known = self._known[tenant] = (
                    version,
                    listening_of(self._config.of(tenant), self._flow),
                )
            for one in known[1]:
                if one.fault:
                    self._complain(tenant, one)
                else:
                    found.setdefault(tenant, []).append(one)
        return found

    def _complain(self, tenant: str, one: Listening) -> None:
        """Nobody waits for it: what it would have been told is passed over until it is mended."""
        mark = (tenant, one.code, one.version)
        if mark not in self._complained:
            if len(self._complained) >= TENANTS_KEPT:
                self._complained.clear()
            self._complained.add(mark)
            self._telemetry.log.warning(
                "a subscription tells nobody",
                tenant=tenant,
                subscription=f"{TOLD}/{one.code}",
                error=one.fault,
            )

    async def _submit(self, requests: Sequence[tuple[Payload, Options]]) -> None:
        try:
            self._note(await self._intake.submit_each(list(requests)))
        except Fenced as fenced:
            if fenced.tenant is None:
                raise
            # One tenant has left for another store, and is told there. The others are told here.
            for tenant in sorted({options.tenant for _, options in requests}):
                await self._submit_of(tenant, [one for one in requests if one[1].tenant == tenant])

    async def _submit_of(self, tenant: str, requests: list[tuple[Payload, Options]]) -> None:
        try:
            self._note(await self._intake.submit_each(requests))
        except Fenced as fenced:
            if fenced.tenant is None:
                raise
            self._telemetry.log.warning(
                "a tenant that has left is not told", tenant=tenant, count=len(requests)
            )

    def _note(self, answers: Sequence[object]) -> None:
        # Submitted before a crash, when the subscription was another one: it was told then.
        changed = sum(isinstance(answer, Conflict) for answer in answers)
        if changed:
            self._telemetry.log.info("told before a subscription changed", count=changed)
        for answer in answers:
            if isinstance(answer, InvalidRequest):
                # No other try would end otherwise, and all tenants would wait for it.
                self._telemetry.log.error(
                    "an endpoint cannot be told", subscription=self.name, error=str(answer)
                )


def _every(_flow: str) -> bool:
    return True


def request_of(event: Event, one: Listening) -> tuple[Payload, Options]:
    """What one endpoint is told of one event: no payload, and nothing about a person.

    The same whenever it is made.
    """
    data = {
        "id": event.id,
        "flow": event.flow,
        "status": event.status,
        "requestId": event.request_id,
        "version": event.version,
        "key": event.key,
        "reason": event.reason,
        "attempts": event.attempts,
        "providerId": event.provider_id,
        "at": iso(event.at_ms),
        "correlationId": event.correlation_id,
        "test": event.test,
    }
    # A caller's own id may have grown by what was masked in it.
    correlation_id = event.correlation_id[:KEY_LENGTH_MAX]
    # What is told of a test reaches no more of the world than the test itself.
    options = Options(
        f"told/{one.code}/{event.id}",
        event.tenant,
        correlation_id=correlation_id,
        causation_id=event.request_id,
        test=event.test,
        source=STATUS_WEBHOOKS,
    )
    return Message(f"request.{event.status}", data, one.endpoint), options
