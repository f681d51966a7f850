"""The inbox: verifies a posted event, decides what it leads to, and stores that before the answer.

An accepted event is a request of the flow that it leads to. Its key is that of the action, so a
repeated, late or doubled event leads to nothing more. An event about a request that exists is a
command to it. An ignored event is a request of the source's own flow that ends as `ignored`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Literal

import msgspec

from gesta.domain.commands import CommandRefused, Ignore
from gesta.domain.event_message import EventMessage
from gesta.domain.ids import TENANT
from gesta.errors import (
    BadConfig,
    Conflict,
    InvalidRequest,
    InvalidSignature,
    StoreError,
    UnknownFlow,
)
from gesta.flows.flow import Flow, Payload
from gesta.intake.inbound.event_ids import event_claim
from gesta.intake.inbound.source import (
    Action,
    Challenge,
    Note,
    Posted,
    Received,
    Untrusted,
    Verdict,
)
from gesta.intake.submit import AboutAnother, Accepted, Intake
from gesta.intake.submit_options import Options
from gesta.outbound.http import AttemptEnded
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, no_job
from gesta.runtime.clock import spawn
from gesta.runtime.component import Process
from gesta.runtime.redaction import scrub
from gesta.security.keyed_digests import KeyedDigests
from gesta.tenants.config import ConfigCache, TenantConfig

#: How old the config that an event is verified with may be. A secret that another process revokes
#: is valid for this long.
CONFIG_SECONDS = 1.0


class EventRecord(Payload, frozen=True):
    """What is kept of an ignored event: never its text."""

    event: str
    facts: dict[str, str]


class Receipt(msgspec.Struct, frozen=True):
    """The result of one event. When it is returned, the event is on disk."""

    id: str
    verdict: Literal["accepted", "duplicate", "ignored"]
    reason: str = ""
    request: Accepted | None = None


#: Puts a message of this tenant into the boundary queue. It is durable when this returns.
Publish = Callable[[str, EventMessage, int], Awaitable[None]]


class Inbox:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        config: ConfigCache,
        intake: Intake,
        loader: Loader,
        recorder: Recorder,
        identity: KeyedDigests,
        process: Process,
    ) -> None:
        self._flows, self._config, self._intake = flows, config, intake
        self._identity = identity
        self._loader, self._recorder = loader, recorder
        self._runtime, self._ids = process.runtime, process.ids
        self._telemetry = process.telemetry
        #: Name of the source → its flow.
        self._sources = {
            flow.inbound.name: flow for flow in flows.values() if flow.inbound is not None
        }
        #: Tenant → when its config was read last, by the monotonic clock.
        self._read_at: dict[str, float] = {}
        #: Tenant → the read of its config that current events share.
        self._reading: dict[str, asyncio.Task[None]] = {}
        #: Set where accepted events pass through a boundary queue.
        self.publish: Publish | None = None

    async def take(
        self,
        source: str,
        tenant: str,
        parts: tuple[str, ...],
        header: Callable[[str], str | None],
        body: bytes,
    ) -> Challenge | list[Receipt]:
        """Verify, decide, store.

        Raises InvalidSignature, always the same, for an event that is not genuine; Malformed or
        InvalidRequest for one that cannot be read; StoreError or Overloaded if the sender has to
        repeat it.
        """
        flow = self._sources.get(source)
        if flow is None or flow.inbound is None:
            raise InvalidSignature
        if tenant not in self._read_at and not TENANT.fullmatch(tenant):
            raise InvalidSignature
        posted = Posted(tenant, parts, header, body, self._ids.new(), self._runtime.now_ms())
        try:
            config = await self._config_of(tenant)
            trusted = await flow.inbound.verify(posted, config)
            found = flow.inbound.read(posted, trusted, config)
        except Untrusted as untrusted:
            self._telemetry.inbound(source, untrusted.reason)
            raise InvalidSignature from None
        except AttemptEnded as ended:
            # What a config says of a vault that is out of reach, in the words of an attempt.
            raise StoreError(f"an event cannot be verified now: {ended.outcome.detail}") from None
        except BadConfig as error:
            raise StoreError(f"an event cannot be verified now: {error}") from None
        if isinstance(found, Challenge):
            return found
        receipts = []
        for one in found:
            if self.publish is None:
                receipts.append(await self._stored(flow, tenant, one))
            else:
                receipts.append(await self._publish(flow, tenant, one, self.publish))
        return receipts

    @property
    def followed(self) -> frozenset[str]:
        """The sources whose events may come through a boundary queue."""
        return frozenset(
            name
            for name, flow in self._sources.items()
            if flow.inbound is not None and flow.inbound.follow is not None
        )

    async def process(self, message: EventMessage, tenant: str, source: str) -> Receipt:
        """Store what follows from a message of the boundary queue.

        Any number of deliveries in any order lead to one request.
        """
        flow = self._sources[source]
        assert flow.inbound is not None
        assert flow.inbound.follow is not None
        received = flow.inbound.follow(message, await self._config_of(tenant))
        return await self._stored(flow, tenant, received)

    async def _config_of(self, tenant: str) -> TenantConfig:
        if self._runtime.monotonic() - self._read_at.get(tenant, -inf) >= CONFIG_SECONDS:
            reading = self._reading.get(tenant)
            if reading is None:
                reading = spawn(self._read_config(tenant), "gesta-inbound-config")
                self._reading[tenant] = reading
            # Shielded: a caller that disconnects must not end the read of the others.
            await asyncio.shield(reading)
        return self._config.of(tenant)

    async def _read_config(self, tenant: str) -> None:
        now = self._runtime.monotonic()
        try:
            await self._config.refresh(tenant)
            if self._config.version(tenant) == 0:
                # An unknown tenant: its name is not kept, or callers could fill the memory.
                self._config.forget(tenant)
            else:
                self._read_at[tenant] = now
        finally:
            del self._reading[tenant]

    async def _publish(self, flow: Flow, tenant: str, one: Received, publish: Publish) -> Receipt:
        action, message = one.follows, one.message
        if not isinstance(action, Action) or message is None:
            return await self._stored(flow, tenant, one)
        # The queue counts from 1 to 5, a request from 1 to 10.
        await publish(tenant, message, action.priority // 2)
        self._telemetry.inbound(flow.name, "accepted")
        return Receipt(one.id, "accepted")

    async def _stored(self, flow: Flow, tenant: str, one: Received) -> Receipt:
        if isinstance(one.follows, Verdict):
            receipt = await self._ignore(flow, tenant, one, one.follows)
        elif isinstance(one.follows, Note):
            receipt = await self._note(flow, tenant, one, one.follows)
        else:
            receipt = await self._submit(flow, tenant, one, one.follows)
        self._telemetry.inbound(flow.name, receipt.reason or receipt.verdict)
        return receipt

    async def _submit(self, flow: Flow, tenant: str, one: Received, action: Action) -> Receipt:
        target = self._flows.get(action.flow)
        if target is None:
            raise UnknownFlow(repr(action.flow), name=action.flow, known=self._flows)
        event = None
        if action.claims_event:
            event = event_claim(self._identity, tenant, flow.name, one.id, action.key)
        options = Options(action.key, tenant, priority=action.priority, correlation_id=one.id)
        try:
            accepted = await self._intake.submit(action.payload(target.payload), options, event)
        except AboutAnother:
            return Receipt(one.id, "duplicate")
        except Conflict as conflict:
            # Another delivery, or another event about the same thing.
            earlier = Accepted(target.name, tenant, conflict.request_id, "duplicate")
            return Receipt(one.id, "duplicate", request=earlier)
        except InvalidRequest as refused:
            if flow.inbound is None or not flow.inbound.records_invalid:
                raise
            verdict = Verdict("invalid_request", scrub(str(refused)))
            return await self._ignore(flow, tenant, one, verdict)
        is_new = accepted.verdict == "created"
        return Receipt(one.id, "accepted" if is_new else "duplicate", request=accepted)

    async def _note(self, flow: Flow, tenant: str, one: Received, note: Note) -> Receipt:
        target = self._flows.get(note.flow)
        if target is None:
            raise UnknownFlow(repr(note.flow), name=note.flow, known=self._flows)
        view = await self._loader.one((note.flow, tenant, note.request_id))
        if view is None:
            # Removed by retention, or of another tenant: the answer does not say which.
            return await self._ignore(flow, tenant, one, Verdict("unknown_request"))
        try:
            applied = await self._recorder.apply(
                view, note.command, target.rules, no_job, causation_id=one.id
            )
        except CommandRefused as refused:
            return await self._ignore(flow, tenant, one, Verdict(refused.code, str(refused)))
        return Receipt(one.id, "accepted" if applied.events else "duplicate")

    async def _ignore(self, flow: Flow, tenant: str, one: Received, verdict: Verdict) -> Receipt:
        if not verdict.is_recorded:
            return Receipt(one.id, "ignored", verdict.reason)
        record = flow.payload(event=one.id, facts=dict(one.facts))
        try:
            accepted = await self._intake.ignore(
                record, Options(one.id, tenant), Ignore(verdict.reason, verdict.detail)
            )
        except Conflict as conflict:
            accepted = Accepted(flow.name, tenant, conflict.request_id, "duplicate")
        return Receipt(one.id, "ignored", verdict.reason, accepted)
