"""What people who run gesta do with it: counts, dead letters, config, keys, pauses, rebuild."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gesta.admin.bulk import BulkRun, resume
from gesta.admin.representations import payload_representation, request_representation
from gesta.api_types.bulk import Bulk, BulkProgress
from gesta.api_types.decisions import DeadLetter
from gesta.domain.events import Actor
from gesta.domain.ids import FLOW, REQUEST_ID, TENANT, TENANT_RULE, covers, pattern_fault
from gesta.domain.state import State
from gesta.domain.stream_names import checkpoint_of
from gesta.engine.pipeline import Pipeline
from gesta.engine.request import Request
from gesta.errors import BadConfig, BadInput, InvalidRequest, NotFound, StoreError
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import secret_fields
from gesta.flows.validation import actor_errors
from gesta.flows.webhook import NAME as WEBHOOK
from gesta.flows.webhook import TOLD
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import subject_errors
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

#: Changes of config that are told at a time.
PAGE = 200


class Listener(msgspec.Struct, frozen=True):
    """Somebody who follows the log, and how far they have come."""

    name: str
    #: Events that they have not seen; never fewer, where positions have gaps more.
    behind: int
    #: Whether a running process tells them.
    is_held: bool
    #: What keeps them from going on, and since when.
    error: str
    failed_at_ms: int | None


def _silent(_done: int, _total: int) -> None:
    """No progress to show."""


class Admin:
    """What can be seen of all requests, and what can be decided about all of them."""

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
        """What was asked, as it may be shown: what is personal in it masked, and told to be gone
        where the person was erased.
        """
        return payload_representation(
            view.payload,
            self._pipeline.flows.get(view.state.flow),
            await self._pipeline.subjects.erased(view),
        )

    async def by_key(
        self, key: str, tenant: str = "default", flow: str | None = None
    ) -> list[View]:
        """What a caller's key led to, newest first: of each flow one request at most, and one test.

        What was removed is not told.
        """
        flows = (
            [flow]
            if flow is not None
            else sorted({*self._pipeline.flows, *(used for used, _ in await self.counts(tenant))})
        )
        # Of a caller's own id, which some flows take, the key is the id itself.
        wanted = [(one, tenant, key) for one in flows if REQUEST_ID.fullmatch(key)]
        for one in flows:
            for test in (False, True):
                name = self._pipeline.identity.name_of(tenant, one, key, test=test)
                # Names are of one length, so the one behind the number before it is it, if anybody
                # has claimed it.
                before = (int.from_bytes(name, "big") - 1).to_bytes(len(name), "big")
                claims = await self._stores.key_claims.claims(before, 1)
                wanted += [
                    (one, tenant, claim.request_id) for claim in claims if claim.name == name
                ]
        found, _ = await self._pipeline.loader.load(wanted)
        views = await self._pipeline.subjects.open_views(list(found.values()))
        return sorted(views, key=lambda view: view.state.id, reverse=True)

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests per (flow, status)."""
        return await self._views.counts(tenant)

    async def is_worked_on(self) -> bool:
        """Whether some process works on the store now."""
        now = self._pipeline.runtime.now_ms()
        return any(
            projects(role) and role.is_held(now) for role in await self._stores.leases.roles()
        )

    async def unseen(self, limit: int = 1_000) -> int:
        """How many events the views do not show yet, counted up to `limit`; less far where they are
        large.
        """
        stores = self._pipeline.environment.stores
        return len(
            await stores.events.follow(
                await projected_position(stores.checkpoints, stores.partitions), limit
            )
        )

    async def quarantined(self, tenant: str | None = None, limit: int = 100) -> list[Quarantined]:
        """Events and jobs that could not be processed and were set aside."""
        return await self._views.quarantined(tenant, limit)

    async def dead_letters(
        self, tenant: str = "default", flow: str | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Requests that failed for good, newest first."""
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
        """The same, in pages of bounded work; `reason` leaves those that failed for it."""
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
        """Requests whose outcome only a person can tell now, newest first."""

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
        return letter

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
        """How many jobs are held, by tenant and scope."""
        return await self._stores.job_holds.held()

    async def erase(
        self, subject: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> int:
        """Destroy the keys of a person, and put that on record: how many there were.

        Safe to repeat, and to be repeated after a crash.
        """
        faults = subject_errors(subject, tenant) | actor_errors(actor)
        if faults:
            raise BadInput("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        # First the keys: a record that came first could be read, and the key fetched once more,
        # before it is gone.
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
        """No more messages of this flow to an address, until somebody takes it off the list; also
        after the person was erased.

        It is put on record.
        """
        return await self._pipeline.suppressing.suppress(
            tenant, flow, self._addresses(flow), address, reason, actor, source
        )

    async def unsuppress(
        self, flow: str, address: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> bool:
        """Messages may go there again, which is put on record. False when it was not on the
        list.
        """
        return await self._pipeline.suppressing.unsuppress(
            tenant, flow, self._addresses(flow), address, actor
        )

    async def unsuppress_entry(
        self, flow: str, entry_id: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> None:
        """The same by the id that the list shows. Raises NotFound."""
        await self._pipeline.suppressing.unsuppress_entry(
            tenant, flow, self._addresses(flow), entry_id, actor
        )

    async def suppressed(self, flow: str, address: str, *, tenant: str = "default") -> Entry | None:
        """Why and since when an address gets no messages; None when it does."""
        return await suppression.entry_of(self._records(tenant), self._addresses(flow), address)

    async def list_suppressed(
        self, flow: str, *, after: str = "", limit: int = 50, tenant: str = "default"
    ) -> tuple[list[Entry], str | None]:
        """A page of the list, addresses masked, and where the next one begins."""
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
        telling = self._pipeline.telling if kind == TOLD else None
        if telling is not None:
            await self.check_config(kind, code, fields, tenant=tenant)
            await telling.begin()
        entity = await self._pipeline.config_writer.put(
            tenant, kind, code, fields, actor=actor, expected=expected
        )
        await self._let_go(tenant, kind, code)
        if telling is not None:
            telling.wake()
        return entity

    async def stored_beside(
        self, kind: str, code: str, given: Collection[str], *, tenant: str = "default"
    ) -> dict[str, Any]:
        """What is stored beside the fields that are given and the secrets, which keep themselves.

        Whoever puts an entity again wants it at work.
        """
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
            await self._told_of_nothing(fields, tenant)
            if kind == TOLD and isinstance(fields, dict)
            else {}
        )
        try:
            await self._pipeline.config_writer.check(tenant, kind, code, fields)
        except BadConfig as error:
            raise BadConfig(kind, code, faults | error.fields) from None
        if faults:
            raise BadConfig(kind, code, faults)

    async def _told_of_nothing(self, fields: dict[str, Any], tenant: str) -> dict[str, str]:
        """The fault of a subscription to a flow that there is not: whoever misspelt it would wait
        for what never comes.
        """
        flow = fields.get("flow", "*")
        if (
            pattern_fault(flow)
            or not TENANT.fullmatch(tenant)
            or any(covers(flow, name) for name in self._pipeline.flows)
        ):
            return {}
        # Others may declare it; then it is known once there are requests of it.
        known = {*self._pipeline.flows, *(name for name, _ in await self.counts(tenant))}
        if any(covers(flow, name) for name in known):
            return {}
        told = (
            f"no flow {flow!r} is declared here, and the tenant has no request of it; known:"
            f" {', '.join(sorted(known))}"
        )
        return {
            "flow": f"{told}. Put it where the flow is declared, or once there are requests of it"
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
        await self._let_go(tenant, kind, code)

    async def _let_go(self, tenant: str, kind: str, code: str) -> None:
        """What was held because a provider refused this credential goes on: it is another one
        now.
        """
        try:
            await self._pipeline.pausing.changed(tenant, f"{kind}/{code}")
        except StoreError as error:
            # The change is on record; the sweep does the rest.
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
        """The version it is at, also where it can no longer be read; 0 when it is not there."""
        await self._pipeline.config.refresh(tenant)
        return self._pipeline.config.of(tenant).version_of(f"{kind}/{code}")

    async def told_webhooks(self, tenant: str = "default") -> list[Listening]:
        """What the tenant's endpoints are told about its requests, and what is wrong with that."""
        flow = self._pipeline.flows.get(WEBHOOK)
        await self._pipeline.config.refresh(tenant)
        return [] if flow is None else listening_of(self._pipeline.config.of(tenant), flow)

    async def handlers(self) -> list[Listener]:
        """Everybody who follows the log under a name: handlers of programs, and the engine's
        own.
        """
        stores, now = self._pipeline.environment.stores, self._pipeline.runtime.now_ms()
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
        """Nobody is told under this name any more; its place is gone, and holds nothing back.

        A program that declares it begins anew.

        Handlers are the installation's, so it is on record with the tenant of its settings, whose
        keys are shown them.
        """
        _check_actor(actor)
        owner = self._pipeline.environment.settings.tenant
        # First the note: a crash in between leaves one too many, and never a place that is gone
        # without a word.
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
        """The template that an attempt would use now, and what it makes of the data: part → text.

        Nothing is sent and nothing is stored.

        Raises InvalidRequest with every variable that is missing, or with what else is wrong.
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

    async def rebuild(self, progress: Progress = _silent) -> int:
        """Fold all views anew from the events, beside whatever works on the store; nothing is sent
        again.

        How many events were folded.
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
        """Begin nothing more of a flow, a tenant, a flow of a tenant, or a tenant's credential
        (`kind/code`).

        Requests are accepted and wait; running attempts go on; a time to live runs on. It counts
        from the next take.
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
        """Let it go on; how many jobs were held. Raises NotFound when exactly this is not
        paused.
        """
        scope = checked(Scope(flow, tenant, credential))
        _check_actor(actor)
        return await self._pipeline.pausing.resume(scope, actor)

    async def pause_everything(self, reason: str = "", actor: Actor | None = None) -> Pause:
        """Begin nothing more of any tenant."""
        checked(Scope(tenant="default"), reason)
        _check_actor(actor)
        return await self._pipeline.pausing.pause(EVERYTHING, scrub(reason), actor)

    async def resume_everything(self, actor: Actor | None = None) -> int:
        """End that pause; how many jobs it held. Others still stand.

        Raises NotFound when there is none.
        """
        _check_actor(actor)
        return await self._pipeline.pausing.resume(EVERYTHING, actor)

    async def paused(self, tenant: str | None = None) -> list[Pause]:
        """What is paused for everybody and for this tenant; without one, for any tenant that has
        held jobs now.
        """
        return await self._pipeline.pausing.paused(tenant)

    async def pauses_of(self, views: Sequence[View]) -> list[Pause | None]:
        """What holds each of these requests, if anything does.

        Told by the pauses: no queue is asked.
        """
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
        """A new API key of the tenant, and its text, which is shown this once.

        A `test` key reaches nothing but the sandbox.
        """
        return await self._pipeline.keys.create(
            tenant, name=name, scopes=scopes, expires_at=expires_at, test=test, actor=actor
        )

    async def list_keys(self, tenant: str = "default") -> list[ApiKey]:
        """The tenant's API keys, newest first, without their texts."""
        return await self._pipeline.keys.listed(tenant)

    async def revoke_key(self, key_id: str, *, tenant: str = "default", actor: Actor) -> ApiKey:
        """End an API key of the tenant for good; everywhere within a second. Safe to repeat."""
        return await self._pipeline.keys.revoke(tenant, key_id, actor)

    async def audit(
        self, tenant: str = "default", before: int | None = None, limit: int = 50
    ) -> list[Change]:
        """Who changed what of a tenant's config, keys, pauses, people, suppression lists and
        handlers, newest first; `before` a version continues a listing.
        """
        return await trail(self._stores.events, tenant, before, min(max(limit, 1), PAGE))


def _check_actor(actor: Actor | None) -> None:
    # What a program passes goes into events for ever, whatever the annotations say.
    faults = actor_errors(actor)
    if faults:
        raise InvalidRequest("config", faults)
