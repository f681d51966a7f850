"""Changes a tenant's config: checks, seals secrets, appends; whoever decided on something old has
to look again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gesta.domain.codec import encode
from gesta.domain.events import Actor, Meta
from gesta.domain.ids import event_id
from gesta.domain.stream_names import config_stream
from gesta.errors import BadConfig, NotFound, Outdated, StoreError
from gesta.flows.flow import ConfigBody, secret_fields
from gesta.flows.validation import decode_fields, tenant_errors
from gesta.ports.event_store import Append, Appended, EventStore, NewEvent, Recorded
from gesta.runtime.clock import Ids, Runtime
from gesta.runtime.redaction import without_credentials
from gesta.security.envelope_encryption import KeyRing
from gesta.tenants.config import (
    DELETED,
    ERASED,
    PUT,
    ConfigCache,
    Entity,
    Unreadable,
)
from gesta.tenants.config_events import NOTES, EntityDeleted, EntityPut, SecretRef, SubjectErased
from gesta.tenants.key_notes import KEY_CREATED, KEY_REVOKED
from gesta.tenants.pauses import PAUSED, RESUMED
from gesta.tenants.templates.renderer import Renderer

T = TypeVar("T")

#: For this long after a change the previous secret is used beside the new one, so that receivers
#: can follow.
ROTATION_MS = 24 * 3600 * 1000
CODE_LENGTH_MAX = 100
TRIES = 5


class Checked(msgspec.Struct, frozen=True):
    """A body that can be stored, what it takes the place of, and the version of the stream at which
    that was so.
    """

    body: ConfigBody
    current: Entity | Unreadable | None
    seen: int


class ConfigWriter:
    """Appends to config streams and seals secrets before."""

    def __init__(
        self,
        events: EventStore,
        key_ring: KeyRing,
        runtime: Runtime,
        ids: Ids,
        reference: Callable[[str], str],
        renderer: Renderer,
    ) -> None:
        self.reference, self._renderer = reference, renderer
        self._events, self._key_ring, self._runtime, self._ids = events, key_ring, runtime, ids
        # Whoever brings a whole list notes many at once: in turns, or all but the first few find
        # the stream moved each time they look.
        self._noting = asyncio.Lock()

    async def check(
        self, cache: ConfigCache, tenant: str, kind: str, code: str, given: dict[str, Any]
    ) -> Checked:
        """The body that `put` would store, and beside what; nothing is written.

        Raises BadConfig with every fault.
        """
        body_type = cache.kind(kind)
        faults = tenant_errors(tenant)
        if not 0 < len(code) <= CODE_LENGTH_MAX or not code.isprintable():
            faults["code"] = f"1 to {CODE_LENGTH_MAX} printable characters"
        if not faults:
            await self.refresh(cache, tenant)
        # Together, before anything is awaited again: what is kept of the current one holds only
        # while the stream has not moved.
        seen, current = cache.version(tenant), cache.of(tenant).find(kind, code)
        if not faults and isinstance(given, dict):
            secrets = dict.fromkeys(secret_fields(body_type), "")
            if current is not None:
                # A secret left out keeps the stored one, and so does a URL of which only what is
                # shown of it comes back.
                given = {**secrets, **_unmasked(given, current)}
            else:
                # There is none to keep, so a blank one is none.
                given = {
                    name: value
                    for name, value in given.items()
                    if name not in secrets or value != ""
                }
        body, field_faults = decode_fields(body_type, given)
        if body is None or faults:
            raise BadConfig(kind, code, faults | field_faults)
        if own_faults := _sent_elsewhere(body, current) | dict(
            await body.faults(code, self._renderer)
        ):
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
        """Store an entity.

        A changed secret becomes a new version; the one before it stays valid for a day.

        Raises Outdated unless the one that is there has the version `expected` (0: none is there).
        The append itself decides: nobody can
        have changed it between the look and the write.
        """
        for _ in range(TRIES):
            checked = await self.check(cache, tenant, kind, code, given)
            _refuse_outdated(kind, code, expected, checked.current)
            entity = await self._encrypted(tenant, kind, code, checked)
            data = encode(
                EntityPut(kind, code, msgspec.Raw(encode(entity.body)), dict(entity.secrets))
            )
            if await self.append(tenant, checked.seen, PUT, data, actor):
                await self.refresh(cache, tenant)
                return entity
        raise busy(tenant)

    async def _encrypted(self, tenant: str, kind: str, code: str, checked: Checked) -> Entity:
        """The entity as it will be, its secrets in the vault."""
        body, current = checked.body, checked.current
        names = secret_fields(type(body))
        refs = dict(current.secrets) if current is not None else {}
        for name in names:
            secret = str(getattr(body, name))
            if secret and [secret] != (await self.open(tenant, current, name))[:1]:
                refs[name] = await self._encrypt(
                    tenant, f"{kind}/{code}/{name}", secret, refs.get(name, ())
                )
        blank = msgspec.structs.replace(body, **dict.fromkeys(names, ""))
        return Entity(kind, code, blank, refs, checked.seen + 1)

    async def amend(self, tenant: str, entity: Entity, body: ConfigBody) -> None:
        """Store another body under the same secrets, unless somebody has changed or deleted the
        entity since it was read.
        """
        data = encode(
            EntityPut(entity.kind, entity.code, msgspec.Raw(encode(body)), dict(entity.secrets))
        )
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

    async def note_erasure(
        self, cache: ConfigCache, tenant: str, digest: str, actor: Actor | None
    ) -> None:
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
        """Put something on record that was done elsewhere; nothing, where what the stream says by
        then speaks against it.
        """
        async with self._noting:
            for _ in range(TRIES):
                await self.refresh(cache, tenant)
                if unless() or await self.append(
                    tenant, cache.version(tenant), type_name, data, actor
                ):
                    return
        raise busy(tenant)

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
        """What `open` would return, where the vault need not be asked for any of it; None: it has
        to be.
        """
        refs = () if entity is None else entity.secrets.get(field, ())
        if len(refs) != 1 or refs[0].until is not None:
            return None
        known = self._key_ring.at_hand(tenant, refs[0].name, refs[0].version)
        return None if known is None else [known]

    async def refresh(self, cache: ConfigCache, tenant: str) -> None:
        cache.apply(await self._events.read([(config_stream(tenant), cache.version(tenant))]))

    async def _encrypt(
        self, tenant: str, name: str, secret: str, before: tuple[SecretRef, ...]
    ) -> tuple[SecretRef, ...]:
        version = before[0].version + 1 if before else 1
        while not await self._key_ring.put(tenant, name, version, secret):
            # Sealed by a change whose event was never appended: that version is nobody's.
            version += 1
        fresh = SecretRef(name, version)
        if not before:
            return (fresh,)
        return (
            fresh,
            msgspec.structs.replace(before[0], until=self._runtime.now_ms() + ROTATION_MS),
        )

    async def append(
        self, tenant: str, expected: int, type_name: str, data: bytes, actor: Actor | None
    ) -> bool:
        """False when the stream has moved since: whoever decided has to look again."""
        name = config_stream(tenant)
        meta = encode(Meta(tenant, "config", name, self._runtime.now_ms(), name, name, actor=actor))
        event = NewEvent(event_id(self._ids.new_bytes(), 0), type_name, data, meta)
        (verdict,) = await self._events.append([Append(name, expected, (event,))])
        return isinstance(verdict, Appended)


def _names(recorded: Recorded, entity: Entity) -> bool:
    """Whether an event is about this entity; one that cannot be read may be."""
    if (
        recorded.type in (ERASED, PAUSED, RESUMED, KEY_CREATED, KEY_REVOKED)
        or recorded.type in NOTES
    ):
        return False
    try:
        named = msgspec.json.decode(recorded.data, type=EntityDeleted)
    except msgspec.DecodeError:
        return True
    return (named.kind, named.code) == (entity.kind, entity.code)


def _refuse_outdated(
    kind: str, code: str, expected: int | None, current: Entity | Unreadable | None
) -> None:
    version = 0 if current is None else current.version
    if expected is not None and version != expected:
        raise Outdated(kind, code, expected, version)


def _unmasked(given: dict[str, Any], current: Entity | Unreadable) -> dict[str, Any]:
    """With the stored text wherever what is shown in its place was given: whoever reads, changes
    and puts must not lose the rest of it.
    """
    if isinstance(current, Unreadable):
        return given
    stored = msgspec.to_builtins(current.body)

    def whole(name: str, value: Any) -> Any:
        known = stored.get(name)
        return known if isinstance(known, str) and value == without_credentials(known) else value

    return {name: whole(name, value) for name, value in given.items()}


def _sent_elsewhere(body: ConfigBody, current: Entity | Unreadable | None) -> dict[str, str]:
    """Secret → fault, for those that would be kept and sent to somebody else than they were stored
    for.
    """
    faults: dict[str, str] = {}
    for secret, fields in body.sent_to.items():
        if current is None or getattr(body, secret) or not current.secrets.get(secret):
            continue
        # Of a body that cannot be read nobody knows where it led.
        before = current.body if isinstance(current, Entity) else None
        changed = [
            name
            for name in fields
            if before is None or getattr(body, name) != getattr(before, name)
        ]
        if changed:
            faults[secret] = (
                f"give it again: {', '.join(changed)} changed, and a stored secret is sent nowhere"
                " else"
            )
    return faults


def busy(tenant: str) -> StoreError:
    return StoreError(f"the config of tenant {tenant} changed {TRIES} times meanwhile; try again")
