"""Event webhooks: sends the status changes of requests to tenants' endpoints.

For each event and each `webhook.subscription` of its tenant that covers it, this submits a request
of `notification.webhook`. The key is made of the subscription's code and the event's id, so a crash
between submit and checkpoint causes no second one. Events of these requests are not sent
(`is_own`).

One process at a time does this for all tenants, and none until a tenant subscribes for the first
time.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from gesta.domain.durations import iso
from gesta.domain.ids import KEY_LENGTH_MAX, covers
from gesta.domain.state import State
from gesta.domain.status_events import STATUS_WEBHOOKS, Event, is_own
from gesta.errors import Conflict, Fenced, InvalidRequest
from gesta.flows.flow import Flow, Payload
from gesta.flows.webhook import SUBSCRIPTION, Message, WebhookSubscription, endpoint_error
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.subscriptions.log_consumer import OWN, Log
from gesta.subscriptions.on_demand import OnDemandConsumer
from gesta.tenants.config import ConfigCache, Entity, TenantConfig

#: Events of one read; the webhooks of all of them are submitted together.
BATCH = 500
#: Tenants whose subscriptions are kept in memory.
TENANTS_KEPT = 10_000


class Listening(msgspec.Struct, frozen=True):
    """A tenant's `webhook.subscription`; `error` says why it sends nothing now."""

    code: str
    flow: str
    statuses: tuple[str, ...]
    endpoint: str
    error: str
    version: int

    def wants(self, flow: str, word: str) -> bool:
        return (not self.statuses or word in self.statuses) and covers(self.flow, flow)


def listening_of(config: TenantConfig, flow: Flow) -> list[Listening]:
    return [
        _listening_to(one, config, flow) for one in config.entities() if one.kind == SUBSCRIPTION
    ]


def _listening_to(entity: Entity, config: TenantConfig, flow: Flow) -> Listening:
    subscription = entity.body
    assert isinstance(subscription, WebhookSubscription)
    error = endpoint_error(subscription.endpoint, config, is_declared=bool(flow.declared))
    return Listening(
        entity.code,
        subscription.flow,
        tuple(subscription.statuses),
        subscription.endpoint,
        error,
        entity.version,
    )


class StatusWebhooks(OnDemandConsumer):
    def __init__(self, *, log: Log, flow: Flow, intake: Intake, config: ConfigCache) -> None:
        super().__init__(f"{OWN}webhooks", "now", log, kind=SUBSCRIPTION, config=config)
        self._flow, self._intake = flow, intake
        #: Tenant → version of its config, and what it has subscribed.
        self._known: dict[str, tuple[int, list[Listening]]] = {}
        #: Broken subscriptions that were logged, each once.
        self._logged: set[tuple[str, str, int]] = set()

    async def step(self) -> int:
        position = await self._begin()
        batch = await self._events.follow(position, BATCH)
        found = self._words(batch, lambda _: True)
        words = {at: one for at, one in found.items() if not is_own(one[1].source)}
        subscribed = await self._subscribed({meta.tenant for _, meta in words.values()})
        events = await self._status_events(
            batch,
            {
                at: (word, meta)
                for at, (word, meta) in words.items()
                if any(one.wants(meta.flow, word) for one in subscribed.get(meta.tenant, ()))
            },
        )
        requests = [
            request_of(event, one)
            for _, event in sorted(events.items())
            for one in subscribed[event.tenant]
            if one.wants(event.flow, event.status)
        ]
        if requests:
            first = events[min(events)]
            if not await self._deliver(
                first.position, first.request_id, lambda: self._submit(requests)
            ):
                return 0
            self._telemetry.handled(self.name, len(requests))
        return await self._pass(batch)

    def _is_silent(self, state: State) -> bool:
        return is_own(state.source)

    async def _subscribed(self, tenants: Collection[str]) -> Mapping[str, Sequence[Listening]]:
        """Tenant → its working subscriptions; one call reads the events of all their configs."""
        if not tenants:
            return {}
        await self._config.refresh(*sorted(tenants))
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
                if one.error:
                    self._log_broken(tenant, one)
                else:
                    found.setdefault(tenant, []).append(one)
        return found

    def _log_broken(self, tenant: str, one: Listening) -> None:
        """Log it once. Its events are skipped until it is fixed."""
        mark = (tenant, one.code, one.version)
        if mark not in self._logged:
            if len(self._logged) >= TENANTS_KEPT:
                self._logged.clear()
            self._logged.add(mark)
            self._telemetry.log.warning(
                "event webhook subscription broken",
                tenant=tenant,
                subscription=f"{SUBSCRIPTION}/{one.code}",
                error=one.error,
            )

    async def _submit(self, requests: Sequence[tuple[Payload, Options]]) -> None:
        try:
            self._log_skipped(await self._intake.submit_each(list(requests)))
        except Fenced as fenced:
            if fenced.tenant is None:
                raise
            # One tenant was moved to another store, which sends its webhooks. Send the others.
            for tenant in sorted({options.tenant for _, options in requests}):
                await self._submit_of(tenant, [one for one in requests if one[1].tenant == tenant])

    async def _submit_of(self, tenant: str, requests: list[tuple[Payload, Options]]) -> None:
        try:
            self._log_skipped(await self._intake.submit_each(requests))
        except Fenced as fenced:
            if fenced.tenant is None:
                raise
            self._telemetry.log.warning(
                "event webhooks of a moved tenant skipped", tenant=tenant, count=len(requests)
            )

    def _log_skipped(self, answers: Sequence[object]) -> None:
        # Submitted before a crash under an older form of the subscription.
        changed = sum(isinstance(answer, Conflict) for answer in answers)
        if changed:
            self._telemetry.log.info("event webhooks already submitted", count=changed)
        for answer in answers:
            if isinstance(answer, InvalidRequest):
                # A retry would fail, too, and delay all tenants.
                self._telemetry.log.error(
                    "event webhook refused", subscription=self.name, error=str(answer)
                )


def request_of(event: Event, one: Listening) -> tuple[Payload, Options]:
    """The webhook for one event: no payload and no personal data, and always the same."""
    data = {
        "id": event.id,
        "flow": event.flow,
        "status": event.status,
        "requestId": event.request_id,
        "version": event.version,
        "key": event.key,
        "reason": event.reason or None,
        "attempts": event.attempts,
        "providerId": event.provider_id or None,
        "at": iso(event.at_ms),
        "correlationId": event.correlation_id,
        "test": event.test,
    }
    # Masking may have made a caller's own id longer.
    correlation_id = event.correlation_id[:KEY_LENGTH_MAX]
    # The webhook of a test request is a test, too.
    options = Options(
        f"subscription/{one.code}/{event.id}",
        event.tenant,
        correlation_id=correlation_id,
        causation_id=event.request_id,
        test=event.test,
        source=STATUS_WEBHOOKS,
    )
    return Message(f"request.{event.status}", data, one.endpoint), options
