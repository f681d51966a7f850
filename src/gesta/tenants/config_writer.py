"""Changes a tenant's config: validates it, encrypts its secrets and appends the event."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gesta.domain.codec import encode
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import event_id
from gesta.domain.stream_names import config_stream
from gesta.errors import BadConfig, NotFound, StoreError, VersionConflict
from gesta.flows.flow import ConfigBody, Flow, secret_fields
from gesta.flows.validation import decode_fields, tenant_errors
from gesta.ports.event_store import Append, Appended, EventStore, NewEvent
from gesta.runtime.clock import Ids, Runtime
from gesta.runtime.redaction import without_credentials
from gesta.runtime.settings import REFERENCE
from gesta.security.envelope_encryption import KeyRing
from gesta.tenants.config import (
    TYPES,
    ConfigCache,
    ConfigEvent,
    Entity,
    EntityDeleted,
    EntityPut,
    SecretRef,
    Unreadable,
)
from gesta.tenants.templates.renderer import Renderer

#: The previous secret stays valid for this long after a rotation, so that receivers can follow.
ROTATION_MS = 24 * 3600 * 1000
CODE_LENGTH_MAX = 100
#: The actor of changes that the engine makes by itself.
ENGINE = Actor("gesta", ("engine",))
TRIES = 5


class ConfigWriter:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        declared: Mapping[str, str],
        events: EventStore,
        key_ring: KeyRing,
        runtime: Runtime,
        reference: Callable[[str], str],
        renderer: Renderer,
    ) -> None:
        """For `declared` see ConfigCache."""
        self.cache = ConfigCache(flows=flows, declared=declared, events=events, writer=self)
        self.reference, self._renderer = reference, renderer
        self._events, self._key_ring, self._runtime = events, key_ring, runtime
        self._ids = Ids(runtime)
        #: Called with tenant, kind, code and reason when the engine has disabled an entity.
        self.disabled: Callable[[str, str, str, str], None] = lambda *_: None
        # Many notes at once go one after the other; otherwise they would conflict with each other.
        self._noting = asyncio.Lock()

    async def change(
        self,
        tenant: str,
        decide: Callable[[], Awaitable[ConfigEvent | None]],
        actor: Actor | None = None,
    ) -> bool:
        """Append the event that `decide` returns; False: it returned none.

        If another process appends first, `decide` is called again with the new config. It must
        read the config before it awaits anything.
        """
        for _ in range(TRIES):
            await self.cache.refresh(tenant)
            seen = self.cache.version(tenant)
            event = await decide()
            if event is None:
                return False
            if await self.append(tenant, seen, event, actor):
                await self.cache.refresh(tenant)
                return True
        raise StoreError(
            f"the config of tenant {tenant} changed {TRIES} times at the same time; try again"
        )

    async def check(self, tenant: str, kind: str, code: str, given: dict[str, Any]) -> None:
        """Raise what `put` would; nothing is written."""
        if not _name_errors(tenant, code):
            await self.cache.refresh(tenant)
        await self._checked(tenant, kind, code, given)

    async def _checked(
        self, tenant: str, kind: str, code: str, given: dict[str, Any]
    ) -> tuple[ConfigBody, Entity | Unreadable | None]:
        """The body that `put` would store, and the entity it replaces. Raises BadConfig."""
        body_type = self.cache.kind(kind)
        errors = _name_errors(tenant, code)
        current = None if errors else self.cache.of(tenant).find(kind, code)
        if not errors and isinstance(given, dict):
            secrets = dict.fromkeys(secret_fields(body_type), "")
            if current is not None:
                # A secret that is left out, or a URL as it is shown, keeps the stored value.
                given = {**secrets, **_unmasked(given, current)}
            else:
                given = {
                    name: value
                    for name, value in given.items()
                    if name not in secrets or value != ""
                }
        body, field_errors = decode_fields(body_type, given)
        if body is None or errors:
            raise BadConfig(kind, code, errors | field_errors)
        if (
            own_errors := _unresolved(body)
            | _redirected_secrets(body, current)
            | dict(await body.errors(code, self._renderer))
        ):
            raise BadConfig(kind, code, own_errors)
        return body, current

    async def put(
        self,
        tenant: str,
        kind: str,
        code: str,
        given: dict[str, Any],
        *,
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> Entity:
        """Store an entity. A changed secret is rotated: the previous one stays valid for a day.

        Raises VersionConflict unless the stored version is `expected` (0: none is stored). The
        append enforces that, so no other process can change the entity in between.
        """
        if _name_errors(tenant, code):
            await self._checked(tenant, kind, code, given)
        put: Entity | None = None

        async def decide() -> EntityPut:
            nonlocal put
            position = self.cache.version(tenant) + 1
            version = self.cache.next_version(tenant, kind, code)
            body, current = await self._checked(tenant, kind, code, given)
            _refuse_outdated(kind, code, expected, current)
            blank, secrets = await self._encrypted(tenant, f"{kind}/{code}", body, current)
            warnings = _warnings(body, current)
            put = Entity(kind, code, blank, secrets, version, position, warnings)
            return _event_of(put, current)

        await self.change(tenant, decide, actor)
        assert put is not None
        return put

    async def _encrypted(
        self, tenant: str, name: str, body: ConfigBody, current: Entity | Unreadable | None
    ) -> tuple[ConfigBody, dict[str, tuple[SecretRef, ...]]]:
        """The body without its secrets, and the references to them."""
        names = secret_fields(type(body))
        refs = dict(current.secrets) if current is not None else {}
        for field in names:
            secret = str(getattr(body, field))
            if secret and [secret] != (await self.open(tenant, current, field))[:1]:
                refs[field] = await self._encrypt(
                    tenant, f"{name}/{field}", secret, refs.get(field, ())
                )
        return msgspec.structs.replace(body, **dict.fromkeys(names, "")), refs

    async def amend(self, tenant: str, entity: Entity, body: ConfigBody) -> bool:
        """Let the engine change an entity's body, unless it was changed or deleted since then.

        Whether it was changed.
        """

        async def decide() -> EntityPut | None:
            current = self.cache.of(tenant).find(entity.kind, entity.code)
            if current is None or current.version != entity.version:
                return None
            return _event_of(msgspec.structs.replace(entity, body=body), current)

        return await self.change(tenant, decide, ENGINE)

    async def delete(
        self,
        tenant: str,
        kind: str,
        code: str,
        *,
        actor: Actor | None = None,
        expected: int | None = None,
    ) -> None:
        """Remove an entity. Raises NotFound; with `expected`, VersionConflict as `put` does."""

        async def decide() -> EntityDeleted:
            current = self.cache.of(tenant).find(kind, code)
            _refuse_outdated(kind, code, expected, current)
            if current is None:
                raise NotFound("config", f"{kind}/{code}")
            return EntityDeleted(kind, code, current.position)

        await self.change(tenant, decide, actor)

    async def note(
        self,
        tenant: str,
        event: ConfigEvent,
        actor: Actor | None,
        unless: Callable[[], bool] = bool,
    ) -> None:
        """Record an event of something that is done elsewhere, unless `unless()` is true."""

        async def decide() -> ConfigEvent | None:
            return None if unless() else event

        async with self._noting:
            await self.change(tenant, decide, actor)

    async def open(self, tenant: str, entity: Entity | Unreadable | None, field: str) -> list[str]:
        now = self._runtime.now_ms()
        refs = () if entity is None else entity.secrets.get(field, ())
        opened = [
            await self._key_ring.get(tenant, ref.name, ref.version)
            for ref in refs
            if ref.until is None or ref.until > now
        ]
        return [secret for secret in opened if secret is not None]

    def at_hand(
        self, tenant: str, entity: Entity | Unreadable | None, field: str
    ) -> list[str] | None:
        """What `open` returns, if this process has decrypted it before; else None."""
        refs = () if entity is None else entity.secrets.get(field, ())
        if len(refs) != 1 or refs[0].until is not None:
            return None
        known = self._key_ring.at_hand(tenant, refs[0].name, refs[0].version)
        return None if known is None else [known]

    async def _encrypt(
        self, tenant: str, name: str, secret: str, before: tuple[SecretRef, ...]
    ) -> tuple[SecretRef, ...]:
        version = before[0].version + 1 if before else 1
        while not await self._key_ring.put(tenant, name, version, secret):
            # A change whose event was never appended has used this version.
            version += 1
        fresh = SecretRef(name, version)
        if not before:
            return (fresh,)
        return (
            fresh,
            msgspec.structs.replace(before[0], until=self._runtime.now_ms() + ROTATION_MS),
        )

    async def append(
        self, tenant: str, expected: int, event: ConfigEvent, actor: Actor | None
    ) -> bool:
        """False: another process has changed the stream since."""
        name = config_stream(tenant)
        meta = encode(Meta(tenant, "config", name, self._runtime.now_ms(), name, name, actor=actor))
        new = NewEvent(event_id(self._ids.new_bytes(), 0), TYPES[type(event)], encode(event), meta)
        (verdict,) = await self._events.append([Append(name, expected, (new,))])
        return isinstance(verdict, Appended)


def _name_errors(tenant: str, code: str) -> dict[str, str]:
    errors = tenant_errors(tenant)
    if not 0 < len(code) <= CODE_LENGTH_MAX or not code.isprintable():
        errors["code"] = f"1 to {CODE_LENGTH_MAX} printable characters"
    return errors


def _event_of(entity: Entity, current: Entity | Unreadable | None) -> EntityPut:
    return EntityPut(
        entity.kind,
        entity.code,
        msgspec.Raw(encode(entity.body)),
        dict(entity.secrets),
        0 if current is None else current.position,
    )


def _warnings(body: ConfigBody, current: Entity | Unreadable | None) -> tuple[str, ...]:
    before = current.body if isinstance(current, Entity) else None
    if not getattr(before, "disabled", False) or getattr(body, "disabled", False):
        return ()
    reason = getattr(before, "disabled_reason", "") or "no reason given"
    return (f"it was disabled ({reason}); this change enables it again",)


def _refuse_outdated(
    kind: str, code: str, expected: int | None, current: Entity | Unreadable | None
) -> None:
    version = 0 if current is None else current.version
    if expected is not None and version != expected:
        raise VersionConflict(kind, code, expected=expected, version=version)


def _unmasked(given: dict[str, Any], current: Entity | Unreadable) -> dict[str, Any]:
    """The fields, with the stored text where its masked form was given.

    A caller that reads an entity, changes it and puts it back must not lose the masked parts.
    """
    if isinstance(current, Unreadable):
        return given
    stored = msgspec.to_builtins(current.body)

    def whole(name: str, value: Any) -> Any:
        known = stored.get(name)
        return known if isinstance(known, str) and value == without_credentials(known) else value

    return {name: whole(name, value) for name, value in given.items()}


def _unresolved(body: ConfigBody) -> dict[str, str]:
    """Secret → error, for each that names a variable instead of being a secret."""
    return {
        name: "names a variable, and gesta reads no variables here: give the secret itself"
        for name in secret_fields(type(body))
        if str(getattr(body, name)).startswith(REFERENCE)
    }


def _redirected_secrets(body: ConfigBody, current: Entity | Unreadable | None) -> dict[str, str]:
    """Secret → error, for each that would be kept and sent to another receiver than before."""
    errors: dict[str, str] = {}
    for secret, fields in body.sent_to.items():
        if current is None or getattr(body, secret) or not current.secrets.get(secret):
            continue
        before = current.body if isinstance(current, Entity) else None
        changed = [
            name
            for name in fields
            if before is None or getattr(body, name) != getattr(before, name)
        ]
        if changed:
            errors[secret] = (
                f"give it again: {', '.join(changed)} changed, and a stored secret is never sent"
                " to another receiver"
            )
    return errors
