"""Commands carried out on the store itself, opened here, beside whatever other process works on
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gesta.admin.representations import (
    attempt_representations,
    entity_representation,
    event_representation,
    key_representation,
    pause_representation,
    quarantined_representation,
    request_representation,
)
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
from gesta.cli.flows import how_to_get
from gesta.cli.idle import warn_if_idle, warn_of_lag
from gesta.cli.lookup import find_request
from gesta.cli.output import tell
from gesta.cli.target import Target
from gesta.cli.template import filled
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.events import Actor
from gesta.domain.outcome import Outcome
from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.errors import BadInput
from gesta.flows.schemas import config_schema
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import Options
from gesta.runtime.clock import SystemRuntime
from gesta.tenants.pauses import Pause
from gesta.tenants.templates.templates import Template

#: How soon another process's events are noticed.
POLL_SECONDS = 0.1
BATCH = 1_000
CONFIG = "config"


class LocalBackend:
    """`opened` is awaited by the first call that needs the store: what is wrong with a payload or a
    kind is told before one is made.
    """

    def __init__(
        self,
        engine: Engine,
        tenant: Callable[[], str],
        opened: Callable[[], Awaitable[object]],
        place: Target,
    ) -> None:
        self._engine, self._tenant, self._opened, self._place = engine, tenant, opened, place
        self._clock = SystemRuntime()

    @property
    def tenant(self) -> str:
        return self._tenant()

    def now_ms(self) -> int:
        return (
            self._engine.pipeline.runtime.now_ms()
            if self._engine.is_running
            else self._clock.now_ms()
        )

    async def _open(self) -> Engine:
        if not self._engine.is_running:
            await self._opened()
        return self._engine

    async def submit(self, flow: str, fields: object, options: Options) -> Submitted:
        content = self._engine.payload(flow, fields, options)
        (answer,) = await (await self._open()).submit_many([(content, options)])
        if isinstance(answer, Exception):
            raise answer
        return Submitted(
            answer.id, answer.flow, "created" if answer.verdict == "created" else "duplicate"
        )

    async def outcome(self, flow: str, request_id: str, timeout_seconds: float) -> Outcome:
        handle = Request(
            (await self._open()).pipeline, Accepted(flow, self.tenant, request_id, "duplicate")
        )
        return await handle.outcome(timeout=timeout_seconds)

    async def find(
        self, flow: str | None, status: str | None, key: str | None, limit: int
    ) -> list[tuple[RequestRepresentation, PauseRepresentation | None]]:
        views = await (await self._open()).find(
            tenant=self.tenant, flow=flow, status=status, key=key, limit=limit
        )
        pauses = await (await self._open()).admin.pauses_of(views)
        return [
            (request_representation(view.state, pause), _represent(pause))
            for view, pause in zip(views, pauses, strict=True)
        ]

    async def whole(self, request_id: str) -> tuple[Whole, PauseRepresentation | None]:
        view = await (await self._open()).admin.look_up(request_id, self.tenant)
        (pause,) = await (await self._open()).admin.pauses_of([view])
        payload = await (await self._open()).admin.shown_payload(view)
        return Whole(
            **msgspec.structs.asdict(request_representation(view.state, pause)), payload=payload
        ), _represent(pause)

    async def events(self, flow: str, request_id: str) -> list[EventRepresentation]:
        history = await (await self._open()).history(request_id, flow=flow, tenant=self.tenant)
        return [
            event_representation(told, version) for version, told in enumerate(history, start=1)
        ]

    async def attempts(self, flow: str, request_id: str) -> list[AttemptRepresentation]:
        return attempt_representations(
            await (await self._open()).history(request_id, flow=flow, tenant=self.tenant)
        )

    async def follow(self) -> AsyncIterator[StreamEvent | None]:
        tenant, events = self.tenant, (await self._open()).pipeline.environment.stores.events
        position = await events.end()
        yield None
        while True:
            batch = await events.follow(position, BATCH)
            for recorded in batch:
                position = recorded.position
                try:
                    meta = decode_meta(recorded.meta)
                    if meta.tenant != tenant or meta.flow == CONFIG:
                        continue
                    event = event_types(meta.flow).decode(recorded.type, recorded.data)
                except msgspec.MsgspecError as error:
                    # What the projector cannot read either stands in `gesta list --parked`.
                    tell(
                        f"cannot be read: {recorded.stream}, version {recorded.version}: {error}",
                        "yellow",
                    )
                    continue
                shown = event_representation((recorded.type, event, meta), recorded.version)
                yield StreamEvent(
                    **msgspec.structs.asdict(shown), request_id=meta.request_id, flow=meta.flow
                )
            if not batch:
                await events.changed(POLL_SECONDS)

    async def quarantined(self, limit: int) -> list[QuarantinedRepresentation]:
        return [
            quarantined_representation(one)
            for one in await (await self._open()).admin.quarantined(self.tenant, limit)
        ]

    async def cancel(self, request_id: str, by: str) -> str:
        return await (await find_request(await self._open(), request_id, self.tenant)).cancel(
            actor=Actor(by)
        )

    async def retry(self, request_id: str, by: str) -> str:
        return await (await find_request(await self._open(), request_id, self.tenant)).retry(
            actor=Actor(by)
        )

    async def redrive(self, request_id: str, ttl: timedelta | None, again: bool, by: str) -> str:
        request = await find_request(await self._open(), request_id, self.tenant)
        return await request.redrive(ttl=ttl, again=again, actor=Actor(by))

    async def resolve(
        self, request_id: str, result: Resolution, evidence: str, provider_id: str, by: str
    ) -> str:
        request = await find_request(await self._open(), request_id, self.tenant)
        return await request.resolve(
            result, by=by, evidence=evidence, provider_id=provider_id, actor=Actor(by)
        )

    async def dead_letters(
        self, flow: str | None, reason: str | None, limit: int
    ) -> list[DeadLetter]:
        letters = await (await self._open()).admin.dead_letters(self.tenant, flow, limit)
        return [letter for letter in letters if reason in (None, letter.last_failure_reason)]

    async def dead_letter(self, request_id: str) -> DeadLetter:
        return await (await self._open()).admin.dead_letter(request_id, self.tenant)

    async def purge(self, letter: DeadLetter, by: str) -> None:
        await (await self._open()).admin.request(letter).purge(actor=Actor(by))

    async def kinds(self) -> Mapping[str, ConfigKind]:
        return {
            kind: kind_of(config_schema(body))
            for flow in self._engine.flows.values()
            for kind, body in flow.config.items()
        }

    async def entities(self) -> list[EntityRepresentation]:
        return [
            entity_representation(one)
            for one in await (await self._open()).admin.list_config(self.tenant)
        ]

    async def entity(self, kind: str, code: str) -> EntityRepresentation:
        return entity_representation(
            await (await self._open()).admin.get_config(kind, code, tenant=self.tenant)
        )

    async def put(
        self, kind: str, code: str, fields: Fields, keep: bool, by: str
    ) -> EntityRepresentation:
        admin = (await self._open()).admin
        kept = (
            await admin.stored_beside(kind, code, set(fields), tenant=self.tenant) if keep else {}
        )
        return entity_representation(
            await admin.put_config(kind, code, kept | fields, tenant=self.tenant, actor=Actor(by))
        )

    async def delete(self, kind: str, code: str, by: str) -> None:
        await (await self._open()).admin.delete_config(
            kind, code, tenant=self.tenant, actor=Actor(by)
        )

    async def preview(self, code: str, fields: Fields, locale: str | None) -> Previewed:
        engine = await self._open()
        entity = await engine.admin.template(code, locale, tenant=self.tenant)
        assert isinstance(entity.body, Template)
        return Previewed(
            entity.code,
            entity.version,
            await filled(engine.pipeline.environment.renderer, entity.body, fields),
        )

    async def pauses(self) -> list[PauseRepresentation]:
        admin = (await self._open()).admin
        # Those of a tenant without held jobs are known only to who asks for that tenant.
        found = {
            str(pause.scope): pause
            for pause in (*await admin.paused(), *await admin.paused(self.tenant))
        }
        held = await admin.held()
        return [
            pause_representation(pause, sum(one.count for one in held if one.scope == scope))
            for scope, pause in sorted(found.items())
        ]

    async def pause(
        self, flow: str | None, tenant: str | None, credential: str | None, reason: str, by: str
    ) -> PauseRepresentation:
        admin = (await self._open()).admin
        if flow is not None:
            await self._refuse_unknown(flow)
        made = await admin.pause(
            flow=flow, tenant=tenant, credential=credential, reason=reason, actor=Actor(by)
        )
        return pause_representation(made, 0)

    async def _refuse_unknown(self, flow: str) -> None:
        """Whoever pauses a misspelt flow would believe that the right one stands still."""
        known = {*self._engine.flows, *(name for name, _ in await self._engine.admin.counts())}
        if flow not in known:
            raise BadInput(
                f"no flow {flow!r} is declared here, and no request of it is stored; known:"
                f" {', '.join(sorted(known))}. Nothing was paused. If it is right,"
                f" {how_to_get(flow, self._engine.settings)}"
            )

    async def resume(
        self, flow: str | None, tenant: str | None, credential: str | None, by: str
    ) -> int:
        return await (await self._open()).admin.resume(
            flow=flow, tenant=tenant, credential=credential, actor=Actor(by)
        )

    async def pause_everything(self, reason: str, by: str) -> PauseRepresentation:
        return pause_representation(
            await (await self._open()).admin.pause_everything(reason, Actor(by)), 0
        )

    async def resume_everything(self, by: str) -> int:
        return await (await self._open()).admin.resume_everything(Actor(by))

    async def erase(self, subject: str, by: str) -> int:
        return await (await self._open()).erase(subject, tenant=self.tenant, actor=Actor(by))

    async def create_key(
        self, name: str, scopes: Sequence[str], expires_at: datetime | None, test: bool, by: str
    ) -> MadeKey:
        key, text = await (await self._open()).admin.create_key(
            name=name,
            scopes=scopes,
            expires_at=expires_at,
            test=test,
            tenant=self.tenant,
            actor=Actor(by),
        )
        return MadeKey(**msgspec.structs.asdict(key_representation(key)), key=text)

    async def keys(self) -> list[KeyRepresentation]:
        return [
            key_representation(one)
            for one in await (await self._open()).admin.list_keys(self.tenant)
        ]

    async def revoke_key(self, key_id: str, by: str) -> KeyRepresentation:
        return key_representation(
            await (await self._open()).admin.revoke_key(key_id, tenant=self.tenant, actor=Actor(by))
        )

    async def warn_if_idle(self) -> None:
        await warn_if_idle(await self._open(), self._place)

    async def warn_of_lag(self) -> None:
        await warn_of_lag(await self._open(), self._place)


def _represent(pause: Pause | None) -> PauseRepresentation | None:
    return None if pause is None else pause_representation(pause, 0)
