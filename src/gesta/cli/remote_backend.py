"""Commands carried out by a running server, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

from gesta.api_types.admin import PauseRepresentation, QuarantinedRepresentation
from gesta.api_types.config import EntityRepresentation, Previewed
from gesta.api_types.decisions import DeadLetter
from gesta.api_types.keys import KeyRepresentation, MadeKey
from gesta.api_types.requests import (
    AttemptRepresentation,
    EventRepresentation,
    RequestRepresentation,
    StreamEvent,
    Submitted,
    Whole,
)
from gesta.cli.backend import ConfigKind, Fields, Resolution, kind_of
from gesta.cli.shown import state_of
from gesta.client import Client
from gesta.client.events import follow
from gesta.domain.outcome import Outcome
from gesta.errors import AccessDenied, BadConfig, BadInput, InvalidRequest
from gesta.intake.submit_options import Options
from gesta.requests.waiters import outcome_of

NOT_A_TENANTS = (
    "that is for everybody, and a server takes it from no tenant; do it on the store: leave the"
    " setting `server` out"
)


class RemoteBackend:
    def __init__(self, client: Client, tenant: str) -> None:
        self._client, self.tenant = client, tenant

    def now_ms(self) -> int:
        return self._client.line.clock.now_ms()

    async def submit(self, flow: str, fields: object, options: Options) -> Submitted:
        if not isinstance(fields, dict):
            raise InvalidRequest(flow, {"payload": "must be a JSON object"})
        try:
            return await self._client.submit(
                flow,
                fields,
                key=options.key,
                deliver_at=options.deliver_at,
                ttl=options.ttl,
                priority=options.priority,
                by=None if options.actor is None else options.actor.user_id,
            )
        except InvalidRequest as error:
            raise InvalidRequest(flow, error.fields) from None

    async def outcome(self, flow: str, request_id: str, timeout_seconds: float) -> Outcome:
        outcome = outcome_of(state_of(await self._client.wait(flow, request_id, timeout_seconds)))
        assert outcome is not None
        return outcome

    async def find(
        self, flow: str | None, status: str | None, key: str | None, limit: int
    ) -> list[tuple[RequestRepresentation, PauseRepresentation | None]]:
        found = [
            one async for one in self._client.find(flow=flow, status=status, key=key, limit=limit)
        ]
        pauses = await self._pauses_of(found)
        return [(one, pauses.get(one.held_by or "")) for one in found]

    async def whole(self, request_id: str) -> tuple[Whole, PauseRepresentation | None]:
        found = await self._client.look_up(request_id)
        return found, (await self._pauses_of([found])).get(found.held_by or "")

    async def _pauses_of(
        self, requests: Sequence[RequestRepresentation]
    ) -> dict[str, PauseRepresentation]:
        """Scope → the pause, of those that hold one of these.

        A key that may not see them leaves their names.
        """
        held = {one.held_by for one in requests if one.held_by is not None}
        if not held:
            return {}
        known = {
            scope: PauseRepresentation(
                scope, None, None, None, "", "", refused=False, by=None, held=0
            )
            for scope in held
        }
        try:
            return known | {one.scope: one for one in await self._client.pauses()}
        except AccessDenied:
            return known

    async def events(self, flow: str, request_id: str) -> list[EventRepresentation]:
        return await self._client.events(flow, request_id)

    async def attempts(self, flow: str, request_id: str) -> list[AttemptRepresentation]:
        return await self._client.attempts(flow, request_id)

    def follow(self) -> AsyncIterator[StreamEvent | None]:
        return follow(self._client.line, {})

    async def quarantined(self, limit: int) -> list[QuarantinedRepresentation]:
        return await self._client.quarantined(min(limit, 1_000))

    async def cancel(self, request_id: str, by: str) -> str:
        return (await self._client.cancel(await self._flow(request_id), request_id, by=by)).status

    async def retry(self, request_id: str, by: str) -> str:
        return (await self._client.retry(await self._flow(request_id), request_id, by=by)).status

    async def redrive(self, request_id: str, ttl: timedelta | None, again: bool, by: str) -> str:
        return (
            await self._client.redrive(
                await self._flow(request_id), request_id, ttl=ttl, again=again, by=by
            )
        ).status

    async def resolve(
        self, request_id: str, result: Resolution, evidence: str, provider_id: str, by: str
    ) -> str:
        flow = await self._flow(request_id)
        decided = await self._client.resolve(
            flow, request_id, result, evidence=evidence, provider_id=provider_id, by=by
        )
        return decided.status

    async def _flow(self, request_id: str) -> str:
        return (await self._client.look_up(request_id)).flow

    async def dead_letters(
        self, flow: str | None, reason: str | None, limit: int
    ) -> list[DeadLetter]:
        return [
            one async for one in self._client.dead_letters(flow=flow, reason=reason, limit=limit)
        ]

    async def dead_letter(self, request_id: str) -> DeadLetter:
        return await self._client.dead_letter(await self._flow(request_id), request_id)

    async def purge(self, letter: DeadLetter, by: str) -> None:
        await self._client.purge(letter.original.flow, letter.original.request_id, by=by)

    async def kinds(self) -> Mapping[str, ConfigKind]:
        return {one.kind: kind_of(one.schema) for one in await self._client.config_kinds()}

    async def entities(self) -> list[EntityRepresentation]:
        return [one async for one in self._client.config()]

    async def entity(self, kind: str, code: str) -> EntityRepresentation:
        return await self._client.get_config(kind, code)

    async def put(
        self, kind: str, code: str, fields: Fields, keep: bool, by: str
    ) -> EntityRepresentation:
        try:
            return await self._client.put_config(kind, code, fields, keep=keep, by=by)
        except InvalidRequest as error:
            raise BadConfig(kind, code, error.fields) from None

    async def delete(self, kind: str, code: str, by: str) -> None:
        await self._client.delete_config(kind, code, by=by)

    async def preview(self, code: str, fields: Fields, locale: str | None) -> Previewed:
        return await self._client.preview_template(code, fields, locale=locale)

    async def pauses(self) -> list[PauseRepresentation]:
        return await self._client.pauses()

    async def pause(
        self, flow: str | None, tenant: str | None, credential: str | None, reason: str, by: str
    ) -> PauseRepresentation:
        self._refuse_everybody(tenant)
        return await self._client.pause(flow=flow, credential=credential, reason=reason, by=by)

    async def resume(
        self, flow: str | None, tenant: str | None, credential: str | None, by: str
    ) -> int:
        self._refuse_everybody(tenant)
        return await self._client.resume(flow=flow, credential=credential, by=by)

    async def pause_everything(self, reason: str, by: str) -> PauseRepresentation:
        raise BadInput(f"--everything: {NOT_A_TENANTS}")

    async def resume_everything(self, by: str) -> int:
        raise BadInput(f"--everything: {NOT_A_TENANTS}")

    def _refuse_everybody(self, tenant: str | None) -> None:
        if tenant is None:
            raise BadInput(
                f"--flow of every tenant: {NOT_A_TENANTS}, or name yours with --tenant"
                f" {self.tenant}"
            )

    async def erase(self, subject: str, by: str) -> int:
        return await self._client.erase(subject, by=by)

    async def create_key(
        self, name: str, scopes: Sequence[str], expires_at: datetime | None, test: bool, by: str
    ) -> MadeKey:
        return await self._client.create_key(
            name, scopes=scopes, expires_at=expires_at, test=test, by=by
        )

    async def keys(self) -> list[KeyRepresentation]:
        return await self._client.keys()

    async def revoke_key(self, key_id: str, by: str) -> KeyRepresentation:
        return await self._client.revoke_key(key_id, by=by)

    async def warn_if_idle(self) -> None:
        """The server answers, and knows better."""

    async def warn_of_lag(self) -> None:
        """The same."""
