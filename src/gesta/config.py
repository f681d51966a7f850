"""Config of a tenant: one stream of entities by kind and code; secrets in the vault, read at execution, never stale.

The worker reads the stream's head with every batch, so a change counts for the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from gesta.addresses import config_stream
from gesta.domain.codec import encode
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import event_id
from gesta.errors import BadConfig, NotFound, StoreError
from gesta.event_store import Append, Appended, EventStore, NewEvent, Recorded
from gesta.flows.flow import ConfigBody, Flow, SecretMark
from gesta.runtime import Ids, Runtime
from gesta.sealing import Safe
from gesta.validation import decode_fields

PUT, DELETED = "config.EntityPut.v1", "config.EntityDeleted.v1"
#: For this long after a change the previous secret is used beside the new one, so that receivers can follow.
ROTATION_MS = 24 * 3600 * 1000
CODE_LENGTH_MAX = 100
TRIES = 5


class SecretRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a secret in the vault; `until` ends its overlap with a newer one."""

    name: str
    version: int
    until: int | None = None


class EntityPut(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str
    code: str
    body: msgspec.Raw
    secrets: dict[str, tuple[SecretRef, ...]] = {}


class EntityDeleted(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    code: str


class Entity(msgspec.Struct, frozen=True):
    """What a tenant stored by code. `body` has its secret fields blank."""

    kind: str
    code: str
    body: ConfigBody
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int


class ConfigCache:
    """All tenants' config that this process has seen, each at a stream version; brought up to date by `apply`."""

    def __init__(self, flows: Mapping[str, Flow], writer: ConfigWriter) -> None:
        self._kinds = {kind: body for flow in flows.values() for kind, body in flow.config.items()}
        self._versions: dict[str, int] = {}
        self._entities: dict[str, dict[tuple[str, str], Entity]] = {}
        self._writer = writer

    def kind(self, name: str) -> type[ConfigBody]:
        if name not in self._kinds:
            raise NotFound("config kind", f"{name} (known: {', '.join(sorted(self._kinds)) or 'none'})")
        return self._kinds[name]

    def version(self, tenant: str) -> int:
        return self._versions.get(tenant, 0)

    def apply(self, changes: list[Recorded]) -> None:
        """Fold newer events of config streams."""
        for recorded in changes:
            tenant = msgspec.json.decode(recorded.meta, type=Meta).tenant
            if recorded.version != self.version(tenant) + 1:
                continue
            entities = self._entities.setdefault(tenant, {})
            if recorded.type == PUT:
                put = msgspec.json.decode(recorded.data, type=EntityPut)
                body = self._kinds.get(put.kind)
                if body is not None:
                    entities[put.kind, put.code] = Entity(
                        put.kind, put.code, msgspec.json.decode(put.body, type=body), put.secrets, recorded.version
                    )  # fmt: skip
            elif recorded.type == DELETED:
                gone = msgspec.json.decode(recorded.data, type=EntityDeleted)
                entities.pop((gone.kind, gone.code), None)
            self._versions[tenant] = recorded.version

    def of(self, tenant: str) -> TenantConfig:
        return TenantConfig(tenant, self._entities.get(tenant, {}), self._writer)


class TenantConfig:
    """One tenant's config as an attempt sees it."""

    __slots__ = ("_entities", "_tenant", "_writer")

    def __init__(self, tenant: str, entities: Mapping[tuple[str, str], Entity], writer: ConfigWriter) -> None:
        self._tenant, self._entities, self._writer = tenant, entities, writer

    def get(self, kind: str, code: str) -> Entity | None:
        return self._entities.get((kind, code))

    def entities(self) -> list[Entity]:
        return [self._entities[key] for key in sorted(self._entities)]

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        """The secret in clear, newest first, with the one before it while their overlap lasts."""
        entity = self._entities.get((kind, code))
        return [] if entity is None else await self._writer.open(self._tenant, entity, field)

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """Switch an entity off for everybody, on record. It must have the fields `disabled` and `disabled_reason`."""
        entity = self._entities.get((kind, code))
        if entity is not None:
            body = msgspec.structs.replace(entity.body, disabled=True, disabled_reason=reason)
            await self._writer.keep(self._tenant, entity, body)

    def reference(self, text: str) -> str:
        """The value behind `env:NAME`; any other text is its own value. Raises KeyError when it is not set."""
        return self._writer.reference(text)


class ConfigWriter:
    """Appends to config streams and seals secrets before."""

    def __init__(self, events: EventStore, safe: Safe, runtime: Runtime, ids: Ids, reference: Callable[[str], str]) -> None:
        self.reference = reference
        self._events, self._safe, self._runtime, self._ids = events, safe, runtime, ids

    async def check(self, cache: ConfigCache, tenant: str, kind: str, code: str, given: dict[str, Any]) -> ConfigBody:
        """The body that `put` would store; nothing is written. Raises BadConfig with every fault."""
        body_type = cache.kind(kind)
        if not 0 < len(code) <= CODE_LENGTH_MAX or not code.isprintable():
            raise BadConfig(kind, code, {"code": f"1 to {CODE_LENGTH_MAX} printable characters"})
        await self.refresh(cache, tenant)
        if cache.of(tenant).get(kind, code) is not None:
            # A secret left out keeps the stored one.
            given = {**dict.fromkeys(secret_fields(body_type), ""), **given}
        body, faults = decode_fields(body_type, given)
        if body is None:
            raise BadConfig(kind, code, faults)
        return body

    async def put(
        self, cache: ConfigCache, tenant: str, kind: str, code: str, given: dict[str, Any], actor: Actor | None = None
    ) -> Entity:
        """Store an entity. A changed secret becomes a new version; the one before it stays valid for a day."""
        body = await self.check(cache, tenant, kind, code, given)
        current = cache.of(tenant).get(kind, code)
        names = secret_fields(type(body))
        refs = dict(current.secrets) if current is not None else {}
        for name in names:
            secret = str(getattr(body, name))
            if secret and [secret] != (await self.open(tenant, current, name))[:1]:
                refs[name] = await self._seal(tenant, f"{kind}/{code}/{name}", secret, refs.get(name, ()))
        blank = msgspec.structs.replace(body, **dict.fromkeys(names, ""))
        await self._append(tenant, PUT, encode(EntityPut(kind, code, msgspec.Raw(encode(blank)), refs)), actor)
        await self.refresh(cache, tenant)
        entity = cache.of(tenant).get(kind, code)
        assert entity is not None
        return entity

    async def keep(self, tenant: str, entity: Entity, body: ConfigBody) -> None:
        """Store another body under the same secrets."""
        put = EntityPut(entity.kind, entity.code, msgspec.Raw(encode(body)), dict(entity.secrets))
        await self._append(tenant, PUT, encode(put), None)

    async def delete(self, cache: ConfigCache, tenant: str, kind: str, code: str, actor: Actor | None = None) -> None:
        await self.refresh(cache, tenant)
        if cache.of(tenant).get(kind, code) is None:
            raise NotFound("config", f"{kind}/{code}")
        await self._append(tenant, DELETED, encode(EntityDeleted(kind, code)), actor)

    async def open(self, tenant: str, entity: Entity | None, field: str) -> list[str]:
        now = self._runtime.now_ms()
        refs = () if entity is None else entity.secrets.get(field, ())
        opened = [await self._safe.get(tenant, ref.name, ref.version) for ref in refs if ref.until is None or ref.until > now]
        return [secret for secret in opened if secret is not None]

    async def refresh(self, cache: ConfigCache, tenant: str) -> None:
        cache.apply(await self._events.read([(config_stream(tenant), cache.version(tenant))]))

    async def _seal(self, tenant: str, name: str, secret: str, before: tuple[SecretRef, ...]) -> tuple[SecretRef, ...]:
        version = before[0].version + 1 if before else 1
        while not await self._safe.put(tenant, name, version, secret):
            # Sealed by a change whose event was never appended: that version is nobody's.
            version += 1
        fresh = SecretRef(name, version)
        if not before:
            return (fresh,)
        return (fresh, msgspec.structs.replace(before[0], until=self._runtime.now_ms() + ROTATION_MS))

    async def _append(self, tenant: str, type_name: str, data: bytes, actor: Actor | None) -> None:
        cause = self._ids.new_bytes()
        name = config_stream(tenant)
        meta = encode(Meta(tenant, "config", name, self._runtime.now_ms(), name, name, actor=actor))
        for _ in range(TRIES):
            existing = await self._events.read([(name, 0)])
            verdicts = await self._events.append(
                [Append(name, len(existing), (NewEvent(event_id(cause, 0), type_name, data, meta),))]
            )
            if isinstance(verdicts[0], Appended):
                return
        raise StoreError(f"the config of tenant {tenant} changed {TRIES} times meanwhile; try again")


def secret_fields(body: type[ConfigBody]) -> list[str]:
    """The fields of a config type that are kept in the vault."""
    hints = get_type_hints(body, include_extras=True)
    return [
        name for name, hint in hints.items() if any(isinstance(mark, SecretMark) for mark in getattr(hint, "__metadata__", ()))
    ]
