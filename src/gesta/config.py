"""Config of a tenant: one stream of entities by kind and code, and of pauses; secrets in the vault, read at execution, never stale.

The worker reads the stream's head with every batch, so a change counts for the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

from gesta.addresses import config_stream
from gesta.config_events import EntityDeleted, EntityPut, SecretRef, SubjectErased
from gesta.domain.codec import encode
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import TENANT, TENANT_RULE, event_id
from gesta.domain.outcome import Retry
from gesta.errors import BadConfig, NotFound, Outdated, StoreError
from gesta.event_store import Append, Appended, EventStore, NewEvent, Recorded
from gesta.flows.flow import ConfigBody, Flow, SecretMark
from gesta.key_notes import KEY_CREATED, KEY_REVOKED, KeyNotes
from gesta.outbound_http import AttemptEnded
from gesta.pauses import PAUSED, RESUMED, PauseBook
from gesta.rendering.renderer import Renderer
from gesta.runtime import Ids, Runtime
from gesta.scrub import scrub, without_credentials
from gesta.sealing import Safe
from gesta.validation import decode_fields

T = TypeVar("T")

PUT, DELETED = "config.EntityPut.v1", "config.EntityDeleted.v1"
#: In the same stream, because it is the one that a tenant has beside those of its requests.
ERASED = "config.SubjectErased.v1"
#: For this long after a change the previous secret is used beside the new one, so that receivers can follow.
ROTATION_MS = 24 * 3600 * 1000
CODE_LENGTH_MAX = 100
TRIES = 5


class Entity(msgspec.Struct, frozen=True):
    """What a tenant stored by code. `body` has its secret fields blank."""

    kind: str
    code: str
    body: ConfigBody
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int


class Unreadable(msgspec.Struct, frozen=True):
    """An entity whose stored body no longer fits its type. It is there, so it must not look as if it were missing."""

    kind: str
    code: str
    fault: str
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int


Entities = dict[tuple[str, str], Entity | Unreadable]
#: Kept of what was made of one version of a tenant's config; more is made anew.
DERIVED_MAX = 1_000


class Snapshot:
    """A tenant's config at one version. It never changes, so what was made of it holds for as long as it is the newest."""

    __slots__ = ("derived", "entities")

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        #: What was made, and `kind/code` → version of what it was made of.
        self.derived: dict[object, tuple[Any, dict[str, int]]] = {}


NOTHING = Snapshot({})


class Checked(msgspec.Struct, frozen=True):
    """A body that can be stored, what it takes the place of, and the version of the stream at which that was so."""

    body: ConfigBody
    current: Entity | Unreadable | None
    seen: int


class ConfigCache:
    """All tenants' config that this process has seen, each at a stream version; brought up to date by `apply`."""

    def __init__(self, flows: Mapping[str, Flow], writer: ConfigWriter, declared: Mapping[str, str]) -> None:
        """`declared`: credential → digest of what the flows of this process declare for it themselves."""
        self._kinds = {kind: body for flow in flows.values() for kind, body in flow.config.items()}
        self._versions: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._writer = writer
        self._seen: set[str] = set()
        self.pauses = PauseBook(declared)
        self.keys = KeyNotes()

    def kind(self, name: str) -> type[ConfigBody]:
        if name not in self._kinds:
            raise NotFound("config kind", f"{name} (known: {', '.join(sorted(self._kinds)) or 'none'})")
        return self._kinds[name]

    @property
    def kinds(self) -> Mapping[str, type[ConfigBody]]:
        """Every kind that this process knows, by name."""
        return self._kinds

    def has_seen(self, kind: str) -> bool:
        """Whether some tenant that this process has read the config of ever stored an entity of this kind."""
        return kind in self._seen

    def forget(self, tenant: str) -> None:
        """As if it had never been asked for; for a tenant that has no config."""
        if not self._versions.get(tenant):
            self._tenants.pop(config_stream(tenant), None)

    def version(self, tenant: str) -> int:
        known = self._versions.get(tenant, 0)
        if not known:
            self._tenants[config_stream(tenant)] = tenant
        return known

    def apply(self, changes: list[Recorded]) -> list[tuple[Recorded, Exception]]:
        """Fold newer events of config streams that `version` was asked for. The ones that cannot be read are left out and told."""
        poison: list[tuple[Recorded, Exception]] = []
        # Attempts that run keep what they began with: an old address never meets a new secret.
        fresh: dict[str, Entities] = {}
        for recorded in changes:
            tenant = self._tenants[recorded.stream]
            if recorded.version != self.version(tenant) + 1:
                continue
            self._versions[tenant] = recorded.version
            try:
                if recorded.type in (PAUSED, RESUMED):
                    self.pauses.fold(tenant, recorded)
                elif recorded.type in (KEY_CREATED, KEY_REVOKED):
                    self.keys.fold(tenant, recorded)
                else:
                    if tenant not in fresh:
                        fresh[tenant] = dict(self._snapshots.get(tenant, NOTHING).entities)
                    self._fold(fresh[tenant], tenant, recorded)
            except msgspec.DecodeError as error:
                poison.append((recorded, error))
        self._snapshots |= {tenant: Snapshot(entities) for tenant, entities in fresh.items()}
        return poison

    def _fold(self, entities: Entities, tenant: str, recorded: Recorded) -> None:
        if recorded.type == PUT:
            put = msgspec.json.decode(recorded.data, type=EntityPut)
            self.pauses.changed(tenant, f"{put.kind}/{put.code}")
            if (body := self._kinds.get(put.kind)) is None:
                return
            self._seen.add(put.kind)
            entity: Entity | Unreadable
            try:
                entity = Entity(put.kind, put.code, msgspec.json.decode(put.body, type=body), put.secrets, recorded.version)
            except msgspec.DecodeError as error:
                entity = Unreadable(put.kind, put.code, str(error), put.secrets, recorded.version)
            entities[put.kind, put.code] = entity
        elif recorded.type == DELETED:
            gone = msgspec.json.decode(recorded.data, type=EntityDeleted)
            self.pauses.changed(tenant, f"{gone.kind}/{gone.code}")
            entities.pop((gone.kind, gone.code), None)

    def of(self, tenant: str) -> TenantConfig:
        return TenantConfig(tenant, self._snapshots.get(tenant, NOTHING), self._writer)


class TenantConfig:
    """One tenant's config as an attempt sees it."""

    __slots__ = ("_entities", "_snapshot", "_tenant", "_writer", "opened", "used")

    def __init__(self, tenant: str, snapshot: Snapshot, writer: ConfigWriter) -> None:
        self._tenant, self._snapshot, self._entities, self._writer = tenant, snapshot, snapshot.entities, writer
        #: Secrets that the attempt has in its hands; they are taken out of whatever it says.
        self.opened: list[str] = []
        #: `kind/code` → version of what was asked for by code.
        self.used: dict[str, int] = {}

    def get(self, kind: str, code: str) -> Entity | None:
        """The entity, None when there is none. Raises BadConfig when what is stored no longer fits its type."""
        entity = self._entities.get((kind, code))
        if isinstance(entity, Unreadable):
            raise BadConfig(kind, code, {"body": f"{entity.fault}; put it again"})
        if entity is not None:
            self.used[f"{kind}/{code}"] = entity.version
        return entity

    def derived(self, key: object, make: Callable[[TenantConfig], T]) -> T:
        """What `make` makes of this config, made once and kept until the config changes. It must depend on `key` and on what `get` says alone.

        No secret belongs in it: those are asked for at each attempt.
        """
        known = self._snapshot.derived.get(key)
        if known is None:
            own = TenantConfig(self._tenant, self._snapshot, self._writer)
            try:
                known = make(own), own.used
            finally:
                self.used |= own.used
            if len(self._snapshot.derived) >= DERIVED_MAX:
                self._snapshot.derived.clear()
            self._snapshot.derived[key] = known
        self.used |= known[1]
        made: T = known[0]
        return made

    def find(self, kind: str, code: str) -> Entity | Unreadable | None:
        """What is stored, readable or not."""
        return self._entities.get((kind, code))

    def version_of(self, credential: str) -> int:
        """The version of the entity that `kind/code` names; 0 when there is none."""
        kind, _, code = credential.partition("/")
        found = self.find(kind, code)
        return 0 if found is None else found.version

    def entities(self) -> list[Entity]:
        """Every entity that can be read."""
        return [entity for _, entity in sorted(self._entities.items()) if isinstance(entity, Entity)]

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        """The secret in clear, newest first, with the one before it while their overlap lasts."""
        try:
            secrets = await self._writer.open(self._tenant, self._entities.get((kind, code)), field)
            self.opened += secrets
            return secrets
        except StoreError as error:
            # Nothing can have been sent without it.
            raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """Switch an entity off for everybody, on record. It must have the fields `disabled` and `disabled_reason`."""
        entity = self.get(kind, code)
        if entity is not None:
            body = msgspec.structs.replace(entity.body, disabled=True, disabled_reason=reason)
            await self._writer.amend(self._tenant, entity, body)

    def reference(self, text: str) -> str:
        """The value behind `env:NAME`; any other text is its own value. Raises KeyError when it is not set."""
        secret = self._writer.reference(text)
        self.opened.append(secret)
        return secret


class ConfigWriter:
    """Appends to config streams and seals secrets before."""

    def __init__(
        self, events: EventStore, safe: Safe, runtime: Runtime, ids: Ids, reference: Callable[[str], str], renderer: Renderer
    ) -> None:
        self.reference, self._renderer = reference, renderer
        self._events, self._safe, self._runtime, self._ids = events, safe, runtime, ids

    async def check(self, cache: ConfigCache, tenant: str, kind: str, code: str, given: dict[str, Any]) -> Checked:
        """The body that `put` would store, and beside what; nothing is written. Raises BadConfig with every fault."""
        body_type = cache.kind(kind)
        faults = {}
        if not TENANT.fullmatch(tenant):
            faults["tenant"] = TENANT_RULE
        if not 0 < len(code) <= CODE_LENGTH_MAX or not code.isprintable():
            faults["code"] = f"1 to {CODE_LENGTH_MAX} printable characters"
        if not faults:
            await self.refresh(cache, tenant)
        # Together, before anything is awaited again: what is kept of the current one holds only while the stream has not moved.
        seen, current = cache.version(tenant), cache.of(tenant).find(kind, code)
        if not faults and isinstance(given, dict):
            secrets = dict.fromkeys(secret_fields(body_type), "")
            if current is not None:
                # A secret left out keeps the stored one, and so does a URL of which only what is shown of it comes back.
                given = {**secrets, **_unmasked(given, current)}
            else:
                # There is none to keep, so a blank one is none.
                given = {name: value for name, value in given.items() if name not in secrets or value != ""}
        body, field_faults = decode_fields(body_type, given)
        if body is None or faults:
            raise BadConfig(kind, code, faults | field_faults)
        if own_faults := await body.faults(code, self._renderer):
            raise BadConfig(kind, code, own_faults)
        return Checked(body, current, seen)

    async def put(
        self,
        cache: ConfigCache,
        tenant: str,
        kind: str,
        code: str,
        given: dict[str, Any],
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> Entity:
        """Store an entity. A changed secret becomes a new version; the one before it stays valid for a day.

        Raises Outdated unless the one that is there has the version `expected` (0: none is there). The append itself decides: nobody can
        have changed it between the look and the write.
        """
        for _ in range(TRIES):
            checked = await self.check(cache, tenant, kind, code, given)
            _refuse_outdated(kind, code, expected, checked.current)
            entity = await self._sealed(tenant, kind, code, checked)
            data = encode(EntityPut(kind, code, msgspec.Raw(encode(entity.body)), dict(entity.secrets)))
            if await self.append(tenant, checked.seen, PUT, data, actor):
                await self.refresh(cache, tenant)
                return entity
        raise busy(tenant)

    async def _sealed(self, tenant: str, kind: str, code: str, checked: Checked) -> Entity:
        """The entity as it will be, its secrets in the vault."""
        body, current = checked.body, checked.current
        names = secret_fields(type(body))
        refs = dict(current.secrets) if current is not None else {}
        for name in names:
            secret = str(getattr(body, name))
            if secret and [secret] != (await self.open(tenant, current, name))[:1]:
                refs[name] = await self._seal(tenant, f"{kind}/{code}/{name}", secret, refs.get(name, ()))
        blank = msgspec.structs.replace(body, **dict.fromkeys(names, ""))
        return Entity(kind, code, blank, refs, checked.seen + 1)

    async def amend(self, tenant: str, entity: Entity, body: ConfigBody) -> None:
        """Store another body under the same secrets, unless somebody has changed or deleted the entity since it was read."""
        data = encode(EntityPut(entity.kind, entity.code, msgspec.Raw(encode(body)), dict(entity.secrets)))
        for _ in range(TRIES):
            newer = await self._events.read([(config_stream(tenant), entity.version)])
            if any(_names(recorded, entity) for recorded in newer):
                return
            if await self.append(tenant, entity.version + len(newer), PUT, data, None):
                return
        raise busy(tenant)

    async def delete(
        self,
        cache: ConfigCache,
        tenant: str,
        kind: str,
        code: str,
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> None:
        """Remove an entity. Raises NotFound; with `expected`, Outdated as `put` does."""
        for _ in range(TRIES):
            await self.refresh(cache, tenant)
            seen, current = cache.version(tenant), cache.of(tenant).find(kind, code)
            _refuse_outdated(kind, code, expected, current)
            if current is None:
                raise NotFound("config", f"{kind}/{code}")
            data = encode(EntityDeleted(kind, code))
            if await self.append(tenant, seen, DELETED, data, actor):
                return
        raise busy(tenant)

    async def note_erasure(self, cache: ConfigCache, tenant: str, digest: str, actor: Actor | None) -> None:
        """Put on record that a subject was erased."""
        await self.note(cache, tenant, ERASED, encode(SubjectErased(digest)), actor)

    async def note(
        self,
        cache: ConfigCache,
        tenant: str,
        type_name: str,
        data: bytes,
        actor: Actor | None,
        unless: Callable[[], bool] = bool,
    ) -> None:
        """Put something on record that was done elsewhere; nothing, where what the stream says by then speaks against it."""
        for _ in range(TRIES):
            await self.refresh(cache, tenant)
            if unless() or await self.append(tenant, cache.version(tenant), type_name, data, actor):
                return
        raise busy(tenant)

    async def open(self, tenant: str, entity: Entity | Unreadable | None, field: str) -> list[str]:
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

    async def append(self, tenant: str, expected: int, type_name: str, data: bytes, actor: Actor | None) -> bool:
        """False when the stream has moved since: whoever decided has to look again."""
        name = config_stream(tenant)
        meta = encode(Meta(tenant, "config", name, self._runtime.now_ms(), name, name, actor=actor))
        event = NewEvent(event_id(self._ids.new_bytes(), 0), type_name, data, meta)
        (verdict,) = await self._events.append([Append(name, expected, (event,))])
        return isinstance(verdict, Appended)


def _names(recorded: Recorded, entity: Entity) -> bool:
    """Whether an event is about this entity; one that cannot be read may be."""
    if recorded.type in (ERASED, PAUSED, RESUMED, KEY_CREATED, KEY_REVOKED):
        return False
    try:
        named = msgspec.json.decode(recorded.data, type=EntityDeleted)
    except msgspec.DecodeError:
        return True
    return (named.kind, named.code) == (entity.kind, entity.code)


def _refuse_outdated(kind: str, code: str, expected: int | None, current: Entity | Unreadable | None) -> None:
    version = 0 if current is None else current.version
    if expected is not None and version != expected:
        raise Outdated(kind, code, expected, version)


def _unmasked(given: dict[str, Any], current: Entity | Unreadable) -> dict[str, Any]:
    """With the stored text wherever what is shown in its place was given: whoever reads, changes and puts must not lose the rest of it."""
    if isinstance(current, Unreadable):
        return given
    stored = msgspec.to_builtins(current.body)

    def whole(name: str, value: Any) -> Any:
        known = stored.get(name)
        return known if isinstance(known, str) and value == without_credentials(known) else value

    return {name: whole(name, value) for name, value in given.items()}


def busy(tenant: str) -> StoreError:
    return StoreError(f"the config of tenant {tenant} changed {TRIES} times meanwhile; try again")


def secret_fields(body: type[ConfigBody]) -> list[str]:
    """The fields of a config type that are kept in the vault."""
    hints = get_type_hints(body, include_extras=True)
    return [
        name for name, hint in hints.items() if any(isinstance(mark, SecretMark) for mark in getattr(hint, "__metadata__", ()))
    ]
