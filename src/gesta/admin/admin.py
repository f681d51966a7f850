"""`engine.admin`: what operators see and decide, one method for each command."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gesta.admin.bulk import BulkRun, resume
from gesta.admin.representations import payload_representation, request_representation
from gesta.api_types.bulk import Bulk, BulkProgress
from gesta.api_types.decisions import DeadLetter
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.event_message import encode_dead_letter
from gesta.domain.events import Actor
from gesta.domain.ids import FLOW, REQUEST_ID, TENANT, TENANT_RULE, covers, pattern_fault
from gesta.domain.state import State
from gesta.domain.stream_names import checkpoint_of
from gesta.engine.pipeline import Pipeline
from gesta.engine.request import Request
from gesta.errors import BadConfig, BadInput, InvalidRequest, NotFound, StoreError
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import secret_fields
from gesta.flows.payment.gateway import Gateway, Window
from gesta.flows.payment.gateways import installed
from gesta.flows.validation import actor_errors, tenant_errors
from gesta.flows.webhook import NAME as WEBHOOK
from gesta.flows.webhook import SUBSCRIPTION
from gesta.intake.inbound.dead_letters import dead_letter_of
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import subject_errors
from gesta.payments.reconcile import Report, window_errors
from gesta.ports.job_queue import HeldJob
from gesta.ports.read_model import Filter, Quarantined, View
from gesta.projector.partitions import projected_position, projects
from gesta.projector.rebuild import Progress
from gesta.requests.dead_letters import failure_of
from gesta.requests.pages import Page, page_of
from gesta.runtime.redaction import scrub
from gesta.subscriptions.status_webhooks import Listening, listening_of
from gesta.tenants import suppression
from gesta.tenants.api_keys import ApiKey
from gesta.tenants.audit_log import Change, trail
from gesta.tenants.config import Entity, HandlerForgotten, SubjectErased
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.pauses import EVERYTHING, Pause, Scope, checked
from gesta.tenants.suppression import BY_HAND, Addresses, Entry
from gesta.tenants.templates.press import RenderError
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates, fill

#: Entries of the audit log in one page, at most.
PAGE = 200


class Listener(msgspec.Struct, frozen=True):
    """A consumer of the log and its progress."""

    name: str
    #: Events that it has not read yet; an upper bound, because positions may have gaps.
    behind: int
    #: Whether a live process has its role.
    is_held: bool
    #: Why its handler fails, and since when.
    error: str
    failed_at_ms: int | None


class Admin:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stores = pipeline.environment.stores
        self._views = self._stores.read_model

    async def look_up(
        self, request_id: str, tenant: str = "default", *, flow: str | None = None
    ) -> View:
        """A request by its id, also of a flow that this process does not declare.

        Raises NotFound, and AmbiguousId where several flows have a request with this id and `flow`
        names none of them.
        """
        loader, known = self._pipeline.loader, self._pipeline.flows
        if flow is not None:
            view = await loader.find([flow] if FLOW.fullmatch(flow) else [], tenant, request_id)
        else:
            view = await loader.find(known, tenant, request_id)
        if view is None and flow is None:
            used = sorted({flow for flow, _ in await self.counts(tenant)} - known.keys())
            view = await loader.find(used, tenant, request_id) if used else None
        if view is None:
            raise self._pipeline.not_found(request_id)
        (view,) = await self._pipeline.subjects.open_views([view])
        return view

    async def shown_payload(self, view: View) -> dict[str, Any] | None:
        """The payload with personal fields masked, and marked where the subject was erased."""
        return payload_representation(
            view.payload,
            self._pipeline.flows.get(view.state.flow),
            await self._pipeline.subjects.erased(view),
        )

    async def by_key(
        self, key: str, tenant: str = "default", flow: str | None = None
    ) -> list[View]:
        """The requests of a key, newest first: at most one of each flow, and one test of each."""
        flows = (
            [flow]
            if flow is not None
            else sorted({*self._pipeline.flows, *(used for used, _ in await self.counts(tenant))})
        )
        # Some flows take the caller's own id; there the key is the id.
        wanted = [(one, tenant, key) for one in flows if REQUEST_ID.fullmatch(key)]
        for one in flows:
            for test in (False, True):
                name = self._pipeline.identity.name_of(tenant, one, key, test=test)
                # `claims` lists what follows a name, so ask for what follows the name before.
                before = (int.from_bytes(name, "big") - 1).to_bytes(len(name), "big")
                claims = await self._stores.key_claims.claims(before, 1)
                wanted += [
                    (one, tenant, claim.request_id) for claim in claims if claim.name == name
                ]
        found, _ = await self._pipeline.loader.load(wanted)
        views = await self._pipeline.subjects.open_views(list(found.values()))
        return sorted(views, key=lambda view: view.state.id, reverse=True)

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """(flow, status) → number of requests."""
        return await self._views.counts(tenant)

    async def is_worked_on(self) -> bool:
        """Whether another live process works on the store, or any process projects."""
        now, leases = self._pipeline.runtime.now_ms(), self._stores.leases
        return any(projects(role) and role.is_held(now) for role in await leases.roles()) or any(
            one.id != self._pipeline.owner and {"worker", "projector"} & {*one.roles}
            for one in await leases.processes()
        )

    async def unseen(self, limit: int = 1_000) -> int:
        """How many events are not projected yet, counted up to `limit`."""
        stores = self._stores
        return len(
            await stores.events.follow(
                await projected_position(stores.checkpoints, stores.partitions), limit
            )
        )

    async def quarantined(self, tenant: str | None = None, limit: int = 100) -> list[Quarantined]:
        """Events and jobs that could not be processed."""
        return await self._views.quarantined(tenant, limit)

    async def dead_letters(
        self, tenant: str = "default", flow: str | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Dead letters, newest first."""
        found: list[DeadLetter] = []
        before: str | None = None
        while len(found) < limit:
            page = await self.dead_letter_page(
                tenant, flow, before_id=before, limit=limit - len(found)
            )
            found += page.items
            if page.next is None:
                break
            before = page.next
        return found

    async def dead_letter_page(
        self,
        tenant: str = "default",
        flow: str | None = None,
        *,
        reason: str | None = None,
        before_id: str | None = None,
        limit: int = 50,
    ) -> Page[DeadLetter]:
        """A page of dead letters, found with a bounded number of reads."""
        now = self._pipeline.runtime.now_ms()

        def pick(view: View) -> DeadLetter | None:
            if reason not in (None, view.state.reason):
                return None
            return self._dead_letter(view.state, now)

        return await page_of(
            self._find_readable, Filter(tenant, flow, "failed", before_id, limit), pick
        )

    async def undecided_page(
        self,
        tenant: str = "default",
        flow: str | None = None,
        *,
        before_id: str | None = None,
        limit: int = 50,
    ) -> Page[State]:
        """Requests with an unknown outcome that a person has to resolve, newest first."""

        def pick(view: View) -> State | None:
            return view.state if view.state.waits_for_a_person else None

        return await page_of(
            self._find_readable, Filter(tenant, flow, "unknown", before_id, limit), pick
        )

    async def _find_readable(self, chosen: Filter) -> list[View]:
        return await self._pipeline.subjects.open_views(await self._views.find(chosen))

    async def dead_letter(
        self, request_id: str, tenant: str = "default", *, flow: str | None = None
    ) -> DeadLetter:
        """Raises NotFound, also for a request that has not failed or was purged."""
        view = await self.look_up(request_id, tenant, flow=flow)
        letter = self._dead_letter(view.state, self._pipeline.runtime.now_ms())
        if letter is None:
            raise NotFound("dead letter", request_id)
        key = (view.state.flow, tenant, request_id)
        types = event_types(view.state.flow)
        history = [
            (types.decode(one.type, one.data), decode_meta(one.meta))
            for one in await self._pipeline.loader.history(key)
        ]
        message = dead_letter_of(view, history)
        if message is None:
            return letter
        return msgspec.structs.replace(
            letter, message=msgspec.json.decode(encode_dead_letter(message))
        )

    def _dead_letter(self, state: State, now_ms: int) -> DeadLetter | None:
        failure = failure_of(state, self._pipeline.flows.get(state.flow), now_ms)
        if failure is None:
            return None
        fields = msgspec.structs.asdict(request_representation(state))
        return DeadLetter(**fields, failure=failure)

    def request(self, letter: DeadLetter) -> Request:
        return Request(self._pipeline, Accepted(letter.flow, letter.tenant, letter.id, "duplicate"))

    def bulk(
        self, asked: Bulk, *, tenant: str = "default", actor: Actor | None = None
    ) -> AsyncGenerator[BulkProgress, None]:
        """Decide about every request that fits a filter; reports the progress as it goes.

        Closing the iterator stops the run between two requests; `resume_bulk` continues it.
        """
        return BulkRun(self._pipeline, tenant=tenant, asked=asked, actor=actor).run()

    async def resume_bulk(
        self,
        run_id: int,
        *,
        rate: float | None = None,
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> AsyncGenerator[BulkProgress, None]:
        """Continue a run that was stopped; `run_id` is `BulkProgress.id`. Raises NotFound."""
        run = await resume(self._pipeline, tenant=tenant, run_id=run_id, rate=rate, actor=actor)
        async for progress in run.run():
            yield progress

    async def held(self) -> list[HeldJob]:
        return await self._stores.job_holds.held()

    async def erase(
        self, subject: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> int:
        """Destroy the keys of a data subject and log that; returns how many there were.

        Safe to repeat, also after a crash.
        """
        faults = subject_errors(subject, tenant) | actor_errors(actor)
        if faults:
            raise BadInput("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        # Keys first: after the log entry a reader could still fetch a key that exists.
        destroyed = await self._pipeline.subjects.destroy(tenant, subject)
        if destroyed is None:
            return 0
        digest, count = destroyed
        await self._pipeline.config_writer.note(tenant, SubjectErased(digest), actor)
        return count

    async def suppress(
        self,
        flow: str,
        address: str,
        *,
        reason: str = "by hand",
        source: str = BY_HAND,
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> Entry:
        """Put an address on the flow's suppression list; it stays there after an erasure."""
        return await self._pipeline.suppressing.suppress(
            tenant, flow, self._addresses(flow), address, reason, actor, source
        )

    async def unsuppress(
        self, flow: str, address: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> bool:
        """Remove an address from the suppression list. False: it was not on it."""
        return await self._pipeline.suppressing.unsuppress(
            tenant, flow, self._addresses(flow), address, actor
        )

    async def unsuppress_entry(
        self, flow: str, entry_id: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> None:
        """Remove an entry by the id that the list shows. Raises NotFound."""
        await self._pipeline.suppressing.unsuppress_entry(
            tenant, flow, self._addresses(flow), entry_id, actor
        )

    async def suppressed(self, flow: str, address: str, *, tenant: str = "default") -> Entry | None:
        """The entry of an address; None: it is not suppressed."""
        return await suppression.entry_of(self._records(tenant), self._addresses(flow), address)

    async def list_suppressed(
        self, flow: str, *, after: str = "", limit: int = 50, tenant: str = "default"
    ) -> tuple[list[Entry], str | None]:
        """A page of the list with masked addresses, and where the next page begins."""
        return await suppression.listed(self._records(tenant), self._addresses(flow), after, limit)

    def _records(self, tenant: str) -> TenantRecords:
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise BadInput(f"tenant: {TENANT_RULE}")
        return self._pipeline.records.of(tenant)

    def _addresses(self, flow: str) -> Addresses:
        found = self._pipeline.flows.get(flow)
        if found is None:
            raise unknown_flow(flow, self._pipeline.flows)
        if found.addresses is None:
            raise BadInput(f"flow: {flow} has no suppression list")
        return found.addresses

    async def put_config(
        self,
        kind: str,
        code: str,
        fields: dict[str, Any],
        *,
        tenant: str = "default",
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> Entity:
        """Store config by code; a secret field left out keeps the stored one.

        `expected`: the version it must be at, 0 for none, or VersionConflict.
        """
        needing = [one for one in self._pipeline.on_demand if one.kind == kind]
        if needing:
            await self.check_config(kind, code, fields, tenant=tenant)
        for consumer in needing:
            await consumer.begin()
        entity = await self._pipeline.config_writer.put(
            tenant, kind, code, fields, actor=actor, expected=expected
        )
        await self._release(tenant, kind, code)
        for consumer in needing:
            consumer.wake()
        return entity

    async def stored_beside(
        self, kind: str, code: str, given: Collection[str], *, tenant: str = "default"
    ) -> dict[str, Any]:
        """The stored fields besides the given ones and the secrets; a put enables the entity."""
        try:
            body = (await self.get_config(kind, code, tenant=tenant)).body
        except (NotFound, BadConfig):
            return {}
        left_out = {*given, *secret_fields(type(body)), "disabled", "disabled_reason"}
        return {
            name: value for name, value in msgspec.to_builtins(body).items() if name not in left_out
        }

    async def check_config(
        self, kind: str, code: str, fields: dict[str, Any], *, tenant: str = "default"
    ) -> None:
        """Raise what `put_config` would; nothing is written."""
        faults = (
            await self._unknown_flow(fields, tenant)
            if kind == SUBSCRIPTION and isinstance(fields, dict)
            else {}
        )
        try:
            await self._pipeline.config_writer.check(tenant, kind, code, fields)
        except BadConfig as error:
            raise BadConfig(kind, code, faults | error.fields) from None
        if faults:
            raise BadConfig(kind, code, faults)

    async def _unknown_flow(self, fields: dict[str, Any], tenant: str) -> dict[str, str]:
        """The error of a subscription to a flow that does not exist."""
        flow = fields.get("flow", "*")
        if (
            pattern_fault(flow)
            or not TENANT.fullmatch(tenant)
            or any(covers(flow, name) for name in self._pipeline.flows)
        ):
            return {}
        # Another process may declare it; then it is known once there are requests of it.
        known = {*self._pipeline.flows, *(name for name, _ in await self.counts(tenant))}
        if any(covers(flow, name) for name in known):
            return {}
        return {
            "flow": f"this process declares no flow {flow!r}, and the tenant has no request of it;"
            f" known: {', '.join(sorted(known))}. Store the subscription where the flow is"
            " declared, or once there are requests of it"
        }

    async def delete_config(
        self,
        kind: str,
        code: str,
        *,
        tenant: str = "default",
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> None:
        """Remove config by code. `expected`: the version it must be at, or VersionConflict."""
        await self._pipeline.config_writer.delete(
            tenant, kind, code, actor=actor, expected=expected
        )
        await self._release(tenant, kind, code)

    async def _release(self, tenant: str, kind: str, code: str) -> None:
        """Release the requests that were held because of this entity: it has changed."""
        try:
            await self._pipeline.pausing.changed(tenant, f"{kind}/{code}")
        except StoreError as error:
            # The change is stored; the sweeper does the rest.
            self._pipeline.telemetry.store_failed("config", error)

    async def list_config(self, tenant: str = "default") -> list[Entity]:
        await self._pipeline.config.refresh(tenant)
        return self._pipeline.config.of(tenant).entities()

    async def get_config(self, kind: str, code: str, *, tenant: str = "default") -> Entity:
        await self._pipeline.config.refresh(tenant)
        entity = self._pipeline.config.of(tenant).get(kind, code)
        if entity is None:
            raise NotFound("config", f"{kind}/{code}")
        return entity

    async def config_version(self, kind: str, code: str, *, tenant: str = "default") -> int:
        """The stored version, also of an unreadable entity; 0: it is not stored."""
        await self._pipeline.config.refresh(tenant)
        return self._pipeline.config.of(tenant).version_of(f"{kind}/{code}")

    async def event_webhooks(self, tenant: str = "default") -> list[Listening]:
        """The tenant's webhook subscriptions, each with the error that stops it, if any."""
        flow = self._pipeline.flows.get(WEBHOOK)
        await self._pipeline.config.refresh(tenant)
        return [] if flow is None else listening_of(self._pipeline.config.of(tenant), flow)

    async def handlers(self) -> list[Listener]:
        """Every consumer of the log: handlers of programs, and the engine's own."""
        stores, now = self._stores, self._pipeline.runtime.now_ms()
        held = {role.name for role in await self._stores.leases.roles() if role.is_held(now)}
        end, prefix = await stores.events.end(), checkpoint_of("")
        return [
            Listener(
                one.name.removeprefix(prefix),
                max(0, end - one.position),
                one.name in held,
                one.error,
                one.failed_at_ms,
            )
            for one in await self._stores.checkpoints.checkpoints()
            if one.name.startswith(prefix)
        ]

    async def forget_handler(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete the checkpoint of a handler; a program that declares it starts anew.

        Handlers belong to the installation, so this is logged with the tenant of the settings.
        """
        _check_actor(actor)
        owner = self._pipeline.environment.settings.tenant
        # The log entry first: after a crash there may be one too many, never one too few.
        await self._pipeline.config_writer.note(owner, HandlerForgotten(name), actor)
        await self._stores.checkpoints.forget(checkpoint_of(name))

    async def template(
        self, code: str, locale: str | None = None, *, tenant: str = "default"
    ) -> Entity:
        """The template that an attempt would use now."""
        self._pipeline.config.kind(TEMPLATE)
        await self._pipeline.config.refresh(tenant)
        found = Templates(
            self._pipeline.config.of(tenant), self._pipeline.environment.renderer
        ).find(code, locale)
        if found is None:
            raise NotFound("template", code)
        return found

    async def preview(
        self,
        code: str,
        data: Mapping[str, Any],
        locale: str | None = None,
        *,
        tenant: str = "default",
    ) -> tuple[Entity, dict[str, str]]:
        """The template that an attempt would use now, and the rendered parts.

        Raises InvalidRequest with every missing variable, or with the error of the template.
        """
        found = await self.template(code, locale, tenant=tenant)
        templates = Templates(self._pipeline.config.of(tenant), self._pipeline.environment.renderer)
        if faults := await templates.missing(code, data, locale, field="variables"):
            raise InvalidRequest(f"template {found.code}", faults)
        assert isinstance(found.body, Template)
        answer = await fill(self._pipeline.environment.renderer, found.body, data, tenant)
        if isinstance(answer, RenderError):
            raise InvalidRequest(f"template {found.code}", {answer.part: answer.text})
        return found, answer

    async def rebuild(self, progress: Progress = lambda _done, _total: None) -> int:
        """Rebuild all views from the events while other processes work; returns how many events.

        Nothing is executed again.
        """
        return await self._pipeline.rebuild.run(progress)

    async def pause(
        self,
        *,
        flow: str | None = None,
        tenant: str | None = None,
        credential: str | None = None,
        reason: str = "",
        actor: Actor | None = None,
    ) -> Pause:
        """Pause a flow, a tenant, a flow of a tenant, or a tenant's credential (`kind/code`).

        Requests are accepted and wait. Running attempts finish. Times to live run on. Workers
        apply it to the next jobs that they lease.
        """
        scope = checked(Scope(flow, tenant, credential), reason)
        _check_actor(actor)
        return await self._pipeline.pausing.pause(scope, scrub(reason), actor)

    async def resume(
        self,
        *,
        flow: str | None = None,
        tenant: str | None = None,
        credential: str | None = None,
        actor: Actor | None = None,
    ) -> int:
        """End a pause; returns how many jobs were held. Raises NotFound."""
        scope = checked(Scope(flow, tenant, credential))
        _check_actor(actor)
        return await self._pipeline.pausing.resume(scope, actor)

    async def pause_everything(self, reason: str = "", actor: Actor | None = None) -> Pause:
        """Pause every tenant."""
        checked(Scope(tenant="default"), reason)
        _check_actor(actor)
        return await self._pipeline.pausing.pause(EVERYTHING, scrub(reason), actor)

    async def resume_everything(self, actor: Actor | None = None) -> int:
        """End that pause; returns how many jobs it held. Other pauses stay. Raises NotFound."""
        _check_actor(actor)
        return await self._pipeline.pausing.resume(EVERYTHING, actor)

    async def reconcile(
        self,
        gateway: str,
        since: datetime,
        until: datetime,
        *,
        tenant: str = "default",
        gateways: Sequence[Gateway] | None = None,
        actor: Actor | None = None,
    ) -> Report:
        """Compare the ledger of an account at a gateway with the record, and correct the record.

        `gateway` is the code of a payment.gateway config. `gateways`: those that the program adds.
        Repeat it, also with overlapping windows: what is corrected once is not corrected again.
        """
        _check_actor(actor)
        if faults := window_errors(since, until) | tenant_errors(tenant):
            raise InvalidRequest("reconcile", faults)
        window = Window(round(since.timestamp() * 1000), round(until.timestamp() * 1000))
        return await self._pipeline.reconciler.run(
            gateway,
            window,
            gateways=installed() if gateways is None else gateways,
            tenant=tenant,
            actor=actor,
        )

    async def paused(self, tenant: str | None = None) -> list[Pause]:
        """The pauses of all tenants together and of this tenant, or of tenants with held jobs."""
        return await self._pipeline.pausing.paused(tenant)

    async def pauses_of(self, views: Sequence[View]) -> list[Pause | None]:
        """The pause that holds each request, if any. Reads config, not the queue."""
        pausing = self._pipeline.pausing
        for tenant in {view.state.tenant for view in views}:
            await pausing.paused(tenant)
        return [pausing.pause_of(view, self._pipeline.flows.get(view.state.flow)) for view in views]

    async def create_key(
        self,
        *,
        name: str,
        scopes: Sequence[str] = ("read", "submit"),
        expires_at: datetime | None = None,
        test: bool = False,
        tenant: str = "default",
        actor: Actor,
    ) -> tuple[ApiKey, str]:
        """A new API key and its text, which cannot be shown again. A `test` key reaches only the
        sandbox.
        """
        return await self._pipeline.keys.create(
            tenant, name=name, scopes=scopes, expires_at=expires_at, test=test, actor=actor
        )

    async def list_keys(self, tenant: str = "default") -> list[ApiKey]:
        """The tenant's API keys, newest first, without their texts."""
        return await self._pipeline.keys.listed(tenant)

    async def revoke_key(self, key_id: str, *, tenant: str = "default", actor: Actor) -> ApiKey:
        """Revoke an API key; every process refuses it within a second. Safe to repeat."""
        return await self._pipeline.keys.revoke(tenant, key_id, actor)

    async def audit(
        self, tenant: str = "default", before: int | None = None, limit: int = 50
    ) -> list[Change]:
        """The audit log of a tenant, newest first; `before` a version continues a listing."""
        return await trail(self._stores.events, tenant, before, min(max(limit, 1), PAGE))


def _check_actor(actor: Actor | None) -> None:
    # A program may pass anything, and it is stored in events.
    if faults := actor_errors(actor):
        raise InvalidRequest("config", faults)
