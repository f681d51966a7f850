"""What people who run gesta do with it: counts, dead letters, config, keys, pauses, rebuild."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gesta.access import ApiKey
from gesta.addresses import config_stream
from gesta.audit import Change, change_of
from gesta.config import Entity, secret_fields
from gesta.dead_letters import DeadLetter, dead_letter
from gesta.domain.events import Actor
from gesta.domain.operation import State
from gesta.errors import BadConfig, BadInput, InvalidRequest, NotFound, StoreError
from gesta.intake import Accepted
from gesta.job_queue import Held
from gesta.options import actor_errors, subject_errors
from gesta.pages import Page, page_of
from gesta.pauses import EVERYTHING, Pause, Scope, checked
from gesta.projector.partitions import place_of, projects
from gesta.projector.rebuild import Progress
from gesta.rendering import TEMPLATE, Template, Templates
from gesta.rendering.press import Fault
from gesta.rendering.templates import fill
from gesta.request import Request
from gesta.road import Road
from gesta.scrub import scrub
from gesta.views import Filter, Parked, View

#: Changes of config that are told at a time.
PAGE = 200


def _silent(_done: int, _total: int) -> None:
    """No progress to show."""


class Operating:
    def __init__(self, road: Road) -> None:
        self._road = road
        self._views = road.outside.stores.views

    async def look_up(self, request_id: str, tenant: str = "default") -> View:
        """A request by its id alone, also of a flow that this process does not declare but the tenant has used; raises NotFound."""
        loader, known = self._road.loader, self._road.flows
        view = await loader.find(list(known), tenant, request_id)
        if view is None:
            used = sorted({flow for flow, _ in await self.counts(tenant)} - known.keys())
            view = await loader.find(used, tenant, request_id) if used else None
        if view is None:
            raise self._road.not_found(request_id)
        return view

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests per (flow, status)."""
        return await self._views.counts(tenant)

    async def is_worked_on(self) -> bool:
        """Whether some process works on the store now."""
        now = self._road.runtime.now_ms()
        return any(projects(role) and role.is_held(now) for role in await self._views.roles())

    async def unseen(self, limit: int = 1_000) -> int:
        """How many events the views do not show yet, counted up to `limit`."""
        stores = self._road.outside.stores
        return len(await stores.events.follow(await place_of(self._views, stores.partitions), limit))

    async def parked(self, tenant: str | None = None, limit: int = 100) -> list[Parked]:
        """Events and jobs that could not be processed and were set aside."""
        return await self._views.parked(tenant, limit)

    async def dead_letters(self, tenant: str = "default", flow: str | None = None, limit: int = 100) -> list[DeadLetter]:
        """Requests that failed for good, newest first."""
        found: list[DeadLetter] = []
        before: str | None = None
        while len(found) < limit:
            page = await self.dead_letter_page(tenant, flow, before_id=before, limit=limit - len(found))
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
        now = self._road.runtime.now_ms()

        def pick(view: View) -> DeadLetter | None:
            if reason not in (None, view.state.reason):
                return None
            return dead_letter(view.state, self._road.flows.get(view.state.flow), now)

        return await page_of(self._views, Filter(tenant, flow, "failed", before_id, limit), pick)

    async def undecided_page(
        self, tenant: str = "default", flow: str | None = None, *, before_id: str | None = None, limit: int = 50
    ) -> Page[State]:
        """Requests whose outcome only a person can tell now, newest first."""

        def pick(view: View) -> State | None:
            return view.state if view.state.waits_for_a_person else None

        return await page_of(self._views, Filter(tenant, flow, "unknown", before_id, limit), pick)

    async def dead_letter(self, request_id: str, tenant: str = "default", *, flow: str | None = None) -> DeadLetter:
        names = self._road.flows if flow is None else [flow]
        view = await self._road.loader.find(names, tenant, request_id)
        letter = None
        if view is not None:
            letter = dead_letter(view.state, self._road.flows.get(view.state.flow), self._road.runtime.now_ms())
        if letter is None:
            # Of a flow that this process does not know it cannot even tell that it exists.
            more = (
                "" if view is not None else "; if its flow is one of your own, name the program: --app MODULE:NAME or GESTA_APP"
            )
            raise NotFound("dead letter", request_id, more)
        return letter

    def request(self, letter: DeadLetter) -> Request:
        original = letter.original
        return Request(self._road, Accepted(original.flow, original.tenant, original.request_id, "duplicate"))

    async def erase(self, subject: str, *, tenant: str = "default", actor: Actor | None = None) -> int:
        """Destroy the keys of a person, and put that on record: how many there were. Safe to repeat, and to be repeated after a crash."""
        faults = subject_errors(subject, tenant) | actor_errors(actor)
        if faults:
            raise BadInput("; ".join(f"{name}: {fault}" for name, fault in faults.items()))
        # First the keys: a record that came first could be read, and the key fetched once more, before it is gone.
        destroyed = await self._road.subjects.destroy(tenant, subject)
        if destroyed is None:
            return 0
        digest, count = destroyed
        await self._road.config_writer.note_erasure(self._road.config, tenant, digest, actor)
        return count

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
        """Store config by code; a secret field left out keeps the stored one. `expected`: the version it must be at, 0 for none, or Outdated."""
        entity = await self._road.config_writer.put(self._road.config, tenant, kind, code, fields, actor, expected)
        await self._let_go(tenant, kind, code)
        return entity

    async def stored_beside(self, kind: str, code: str, given: Collection[str], *, tenant: str = "default") -> dict[str, Any]:
        """What is stored beside the fields that are given and the secrets, which keep themselves. Whoever puts an entity again wants it at work."""
        try:
            body = (await self.get_config(kind, code, tenant=tenant)).body
        except (NotFound, BadConfig):
            return {}
        left_out = {*given, *secret_fields(type(body)), "disabled", "disabled_reason"}
        return {name: value for name, value in msgspec.to_builtins(body).items() if name not in left_out}

    async def check_config(self, kind: str, code: str, fields: dict[str, Any], *, tenant: str = "default") -> None:
        """Raise what `put_config` would; nothing is written."""
        await self._road.config_writer.check(self._road.config, tenant, kind, code, fields)

    async def delete_config(
        self, kind: str, code: str, *, tenant: str = "default", actor: Actor | None = None, expected: int | None = None
    ) -> None:
        """Remove config by code. `expected`: the version it must be at, or Outdated."""
        await self._road.config_writer.delete(self._road.config, tenant, kind, code, actor, expected)
        await self._let_go(tenant, kind, code)

    async def _let_go(self, tenant: str, kind: str, code: str) -> None:
        """What was held because a provider refused this credential goes on: it is another one now."""
        try:
            await self._road.pausing.changed(tenant, f"{kind}/{code}")
        except StoreError as error:
            # The change is on record; the sweep does the rest.
            self._road.telemetry.store_failed("config", error)

    async def list_config(self, tenant: str = "default") -> list[Entity]:
        await self._road.config_writer.refresh(self._road.config, tenant)
        return self._road.config.of(tenant).entities()

    async def get_config(self, kind: str, code: str, *, tenant: str = "default") -> Entity:
        await self._road.config_writer.refresh(self._road.config, tenant)
        entity = self._road.config.of(tenant).get(kind, code)
        if entity is None:
            raise NotFound("config", f"{kind}/{code}")
        return entity

    async def config_version(self, kind: str, code: str, *, tenant: str = "default") -> int:
        """The version it is at, also where it can no longer be read; 0 when it is not there."""
        await self._road.config_writer.refresh(self._road.config, tenant)
        return self._road.config.of(tenant).version_of(f"{kind}/{code}")

    async def template(self, code: str, locale: str | None = None, *, tenant: str = "default") -> Entity:
        """The template that an attempt would use now."""
        self._road.config.kind(TEMPLATE)
        await self._road.config_writer.refresh(self._road.config, tenant)
        found = Templates(self._road.config.of(tenant), self._road.outside.renderer).find(code, locale)
        if found is None:
            raise NotFound("template", code)
        return found

    async def preview(
        self, code: str, data: Mapping[str, Any], locale: str | None = None, *, tenant: str = "default"
    ) -> tuple[Entity, dict[str, str]]:
        """The template that an attempt would use now, and what it makes of the data: part → text. Nothing is sent and nothing is stored.

        Raises InvalidRequest with every variable that is missing, or with what else is wrong.
        """
        found = await self.template(code, locale, tenant=tenant)
        templates = Templates(self._road.config.of(tenant), self._road.outside.renderer)
        if faults := await templates.missing(code, data, locale, field="variables"):
            raise InvalidRequest(f"template {found.code}", faults)
        assert isinstance(found.body, Template)
        answer = await fill(self._road.outside.renderer, found.body, data)
        if isinstance(answer, Fault):
            raise InvalidRequest(f"template {found.code}", {answer.part: answer.text})
        return found, answer

    async def rebuild(self, progress: Progress = _silent) -> int:
        """Fold all views anew from the events, beside whatever works on the store; nothing is sent again. How many events were folded."""
        return await self._road.rebuild.run(progress)

    async def pause(
        self,
        *,
        flow: str | None = None,
        tenant: str | None = None,
        credential: str | None = None,
        reason: str = "",
        actor: Actor | None = None,
    ) -> Pause:
        """Begin nothing more of a flow, a tenant, a flow of a tenant, or a tenant's credential (`kind/code`).

        Requests are accepted and wait; running attempts go on; a time to live runs on. It counts from the next take.
        """
        scope = checked(Scope(flow, tenant, credential), reason)
        _check_actor(actor)
        return await self._road.pausing.pause(scope, scrub(reason), actor)

    async def resume(
        self, *, flow: str | None = None, tenant: str | None = None, credential: str | None = None, actor: Actor | None = None
    ) -> int:
        """Let it go on; how many jobs were held. Raises NotFound when exactly this is not paused."""
        scope = checked(Scope(flow, tenant, credential))
        _check_actor(actor)
        return await self._road.pausing.resume(scope, actor)

    async def pause_everything(self, reason: str = "", actor: Actor | None = None) -> Pause:
        """Begin nothing more of any tenant."""
        checked(Scope(tenant="default"), reason)
        _check_actor(actor)
        return await self._road.pausing.pause(EVERYTHING, scrub(reason), actor)

    async def resume_everything(self, actor: Actor | None = None) -> int:
        """End that pause; how many jobs it held. Others still stand. Raises NotFound when there is none."""
        _check_actor(actor)
        return await self._road.pausing.resume(EVERYTHING, actor)

    async def paused(self, tenant: str | None = None) -> list[Pause]:
        """What is paused for everybody and for this tenant; without one, for any tenant that has held jobs now."""
        return await self._road.pausing.paused(tenant)

    async def pauses_of(self, views: Sequence[View]) -> list[Pause | None]:
        """What holds each of these requests, if anything does. Told by the pauses: no queue is asked."""
        pausing = self._road.pausing
        for tenant in {view.state.tenant for view in views}:
            await pausing.paused(tenant)
        return [pausing.pause_of(view, self._road.flows.get(view.state.flow)) for view in views]

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
        """A new API key of the tenant, and its text, which is shown this once. A `test` key reaches nothing but the sandbox."""
        return await self._road.keys.create(tenant, name=name, scopes=scopes, expires_at=expires_at, test=test, actor=actor)

    async def list_keys(self, tenant: str = "default") -> list[ApiKey]:
        """The tenant's API keys, newest first, without their texts."""
        return await self._road.keys.listed(tenant)

    async def revoke_key(self, key_id: str, *, tenant: str = "default", actor: Actor) -> ApiKey:
        """End an API key of the tenant for good; everywhere within a second. Safe to repeat."""
        return await self._road.keys.revoke(tenant, key_id, actor)

    async def audit(self, tenant: str = "default", before: int | None = None, limit: int = 50) -> list[Change]:
        """Who changed what of a tenant's config, keys, pauses and people, newest first; `before` a version continues a listing."""
        events = self._road.outside.stores.events
        return [change_of(one) for one in await events.read_back(config_stream(tenant), before, min(max(limit, 1), PAGE))]

    async def held(self) -> list[Held]:
        """How many jobs are held, by tenant and scope."""
        return await self._road.outside.stores.queue.held()


def _check_actor(actor: Actor | None) -> None:
    # What a program passes goes into events for ever, whatever the annotations say.
    faults = actor_errors(actor)
    if faults:
        raise InvalidRequest("config", faults)
