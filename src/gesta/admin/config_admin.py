"""What operators see and change of a tenant's config, its templates and subscriptions."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from gesta.admin.request_queries import RequestQueries
from gesta.domain.events import Actor
from gesta.domain.ids import TENANT, covers, pattern_error
from gesta.errors import BadConfig, InvalidRequest, NotFound, StoreError
from gesta.flows.flow import secret_fields
from gesta.flows.webhook import NAME as WEBHOOK
from gesta.flows.webhook import SUBSCRIPTION
from gesta.intake.flow_checks import address_of
from gesta.runtime.settings import REFERENCE
from gesta.subscriptions.status_webhooks import Listening, listening_of
from gesta.tenants.config import Entity
from gesta.tenants.templates.press import RenderError
from gesta.tenants.templates.templates import TEMPLATE, Template, Templates, fill, find_template


class ConfigAdmin(RequestQueries):
    async def put_config(
        self,
        kind: str,
        code: str,
        fields: dict[str, Any],
        *,
        tenant: str = "default",
        actor: Actor | None = None,
        expected: int | None = None,
        references: bool = True,
    ) -> Entity:
        """Store config by code; a secret field left out keeps the stored one.

        `env:NAME` as a secret stores the value of that variable; not with `references=False`, where
        the fields come from another machine. `expected`: the version it must be at, 0 for none, or
        VersionConflict.
        """
        if references:
            fields = await self._resolved(kind, code, fields, tenant)
        needing = [one for one in self._pipeline.on_demand if one.kind == kind]
        if needing:
            await self._check(kind, code, fields, tenant)
        for consumer in needing:
            await consumer.begin()
        entity = await self._pipeline.config_writer.put(
            tenant, kind, code, fields, actor=actor, expected=expected
        )
        await self._release(tenant, kind, code)
        for consumer in needing:
            consumer.wake()
        warning = self._not_callable(entity)
        return (
            msgspec.structs.replace(entity, warnings=(*entity.warnings, warning))
            if warning
            else entity
        )

    def _not_callable(self, entity: Entity) -> str:
        """The warning about a URL with an address that this process may not call; or none.

        A worker may be allowed to call it, so the config is stored.
        """
        guard, url = self._pipeline.environment.guard, getattr(entity.body, "url", None)
        scheme, host = address_of(url) if isinstance(url, str) else ("", "")
        refusal = guard.refusal(host, scheme) if guard is not None and host else None
        if refusal is None:
            return ""
        return (
            f"requests to {host} fail ({refusal}) unless GESTA_ALLOW_PRIVATE of the process that"
            " executes them (the worker) names its network; this process does not have it"
        )

    async def _resolved(
        self, kind: str, code: str, fields: dict[str, Any], tenant: str
    ) -> dict[str, Any]:
        """The fields, with the value of each variable that a secret names as `env:NAME`."""
        body = self._pipeline.config.kind(kind)
        values, errors = dict[str, str](), dict[str, str]()
        # A program may pass anything; validation names the error.
        for name in secret_fields(body) if isinstance(fields, dict) else ():
            if isinstance(text := fields.get(name), str):
                try:
                    values[name] = self._pipeline.environment.reference(text)
                except KeyError:
                    errors[name] = f"the variable {text.removeprefix(REFERENCE)} is not set"
        resolved = fields | values if values else fields
        if errors:
            try:
                await self._check(kind, code, resolved, tenant)
            except BadConfig as error:
                errors = error.fields | errors
            raise BadConfig(kind, code, errors)
        return resolved

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
        await self._check(kind, code, await self._resolved(kind, code, fields, tenant), tenant)

    async def _check(self, kind: str, code: str, fields: dict[str, Any], tenant: str) -> None:
        errors = (
            await self._unknown_flow(fields, tenant)
            if kind == SUBSCRIPTION and isinstance(fields, dict)
            else {}
        )
        try:
            await self._pipeline.config_writer.check(tenant, kind, code, fields)
        except BadConfig as error:
            raise BadConfig(kind, code, errors | error.fields) from None
        if errors:
            raise BadConfig(kind, code, errors)

    async def _unknown_flow(self, fields: dict[str, Any], tenant: str) -> dict[str, str]:
        """The error of a subscription to a flow that does not exist."""
        flow = fields.get("flow", "*")
        if (
            pattern_error(flow)
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
        return (await self._pipeline.config.fresh(tenant)).entities()

    async def get_config(self, kind: str, code: str, *, tenant: str = "default") -> Entity:
        entity = (await self._pipeline.config.fresh(tenant)).get(kind, code)
        if entity is None:
            raise NotFound("config", f"{kind}/{code}")
        return entity

    async def config_version(self, kind: str, code: str, *, tenant: str = "default") -> int:
        """The stored version, also of an unreadable entity; 0: it is not stored."""
        return (await self._pipeline.config.fresh(tenant)).version_of(f"{kind}/{code}")

    async def event_webhooks(self, tenant: str = "default") -> list[Listening]:
        """The tenant's webhook subscriptions, each with the error that stops it, if any."""
        flow = self._pipeline.flows.get(WEBHOOK)
        config = await self._pipeline.config.fresh(tenant)
        return [] if flow is None else listening_of(config, flow)

    async def template(
        self, code: str, locale: str | None = None, *, tenant: str = "default"
    ) -> Entity:
        """The template that an attempt would use now."""
        self._pipeline.config.kind(TEMPLATE)
        found = find_template(await self._pipeline.config.fresh(tenant), code, locale)
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
        templates = Templates(self._pipeline.environment.renderer, self._pipeline.config.of(tenant))
        if errors := await templates.missing(code, data, locale, field="variables"):
            raise InvalidRequest(f"template {found.code}", errors)
        assert isinstance(found.body, Template)
        answer = await fill(self._pipeline.environment.renderer, found.body, data, tenant)
        if isinstance(answer, RenderError):
            raise InvalidRequest(f"template {found.code}", {answer.part: answer.text})
        return found, answer
