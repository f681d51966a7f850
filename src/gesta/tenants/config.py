"""A tenant's config: entities by kind and code, folded from the tenant's config stream.

The worker reads the new events of the stream with every batch, so a change applies to the next
attempt. Secrets are in the vault; the stream has references to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import msgspec

from gesta.api_types.config_commands import put_command
from gesta.domain.codec import decode_meta
from gesta.domain.outcome import Retry
from gesta.domain.stream_names import config_stream
from gesta.errors import BadConfig, NotFound, StoreError
from gesta.flows.channels import how_to_add
from gesta.flows.flow import ConfigBody, Flow
from gesta.outbound.http import AttemptEnded
from gesta.ports.event_store import EventStore, Recorded
from gesta.runtime.redaction import scrub
from gesta.tenants.pauses import PAUSED, RESUMED, PauseBook, Paused, Resumed

if TYPE_CHECKING:
    from gesta.tenants.config_writer import ConfigWriter

T = TypeVar("T")
P = ParamSpec("P")


class SecretRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a secret in the vault; `until` ends its overlap with a newer one."""

    name: str
    version: int
    until: int | None = None


class EntityPut(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`before` is the position in the stream of the put that this one replaces; 0: of none."""

    kind: str
    code: str
    body: msgspec.Raw
    secrets: dict[str, tuple[SecretRef, ...]] = {}
    before: int = 0


class EntityDeleted(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    kind: str
    code: str
    before: int = 0


class KeyCreated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An API key was about to be created; the vault decides whether it was."""

    id: str
    name: str
    scopes: tuple[str, ...]
    test: bool = False
    expires_at: int | None = None


class KeyRevoked(msgspec.Struct, frozen=True, rename="camel"):
    id: str


class AddressSuppressed(msgspec.Struct, frozen=True, rename="camel"):
    """An operator put an address on the suppression list of a flow.

    `id` is the digest that names the entry; the list has the reason.
    """

    flow: str
    id: str


class AddressUnsuppressed(msgspec.Struct, frozen=True, rename="camel"):
    flow: str
    id: str


class HandlerForgotten(msgspec.Struct, frozen=True, rename="camel"):
    """The position of a handler that no program declares any more was deleted."""

    name: str


class SubjectErased(msgspec.Struct, frozen=True, rename="camel"):
    """The keys of a data subject were destroyed. `subject` is its digest."""

    subject: str


class BulkStarted(msgspec.Struct, frozen=True, rename="camel"):
    """A decision about every request that fits a filter was started.

    `asked` is the whole of what was asked, so that the run can be resumed.
    """

    action: str
    filter: Mapping[str, str | bool]
    matched: int
    asked: msgspec.Raw


class BulkEnded(msgspec.Struct, frozen=True, rename="camel"):
    """A bulk run has decided about every request that it found.

    `run` is the version of its `BulkStarted`. `done` counts the parts that stopped before, too.
    `refused` is about the last part: a request that it can still change is decided about again.
    """

    run: int
    action: str
    done: int
    refused: int


class BulkStopped(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a bulk run ended early. `done` is how many requests this part changed."""

    run: int
    action: str
    done: int


ConfigEvent = (
    EntityPut
    | EntityDeleted
    | Paused
    | Resumed
    | KeyCreated
    | KeyRevoked
    | AddressSuppressed
    | AddressUnsuppressed
    | HandlerForgotten
    | SubjectErased
    | BulkStarted
    | BulkEnded
    | BulkStopped
)
PUT, DELETED = "config.EntityPut.v1", "config.EntityDeleted.v1"
KEY_CREATED, KEY_REVOKED = "config.KeyCreated.v1", "config.KeyRevoked.v1"
SUPPRESSED, UNSUPPRESSED = "config.AddressSuppressed.v1", "config.AddressUnsuppressed.v1"
HANDLER_FORGOTTEN = "config.HandlerForgotten.v1"
ERASED = "config.SubjectErased.v1"
BULK_STARTED, BULK_ENDED = "config.BulkStarted.v1", "config.BulkEnded.v1"
BULK_STOPPED = "config.BulkStopped.v1"
#: Event → the type that it is stored under. The stream is also the audit log of what was done
#: elsewhere: keys, suppressed addresses, handlers, data subjects, bulk runs.
TYPES: Mapping[type[ConfigEvent], str] = {
    EntityPut: PUT,
    EntityDeleted: DELETED,
    Paused: PAUSED,
    Resumed: RESUMED,
    KeyCreated: KEY_CREATED,
    KeyRevoked: KEY_REVOKED,
    AddressSuppressed: SUPPRESSED,
    AddressUnsuppressed: UNSUPPRESSED,
    HandlerForgotten: HANDLER_FORGOTTEN,
    SubjectErased: ERASED,
    BulkStarted: BULK_STARTED,
    BulkEnded: BULK_ENDED,
    BulkStopped: BULK_STOPPED,
}


class Entity(msgspec.Struct, frozen=True):
    """What a tenant stored by code. The secret fields of `body` are blank.

    `version` counts the changes of this entity and goes on after a deletion. `position` is where
    the last change is in the stream. `warnings` are about the put that returned this value.
    """

    kind: str
    code: str
    body: ConfigBody
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int
    position: int = 0
    warnings: tuple[str, ...] = ()


class Unreadable(msgspec.Struct, frozen=True):
    """An entity whose stored body no longer fits its type. It is not missing."""

    kind: str
    code: str
    error: str
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int
    position: int


Entities = dict[tuple[str, str], Entity | Unreadable]
#: Derived values that are kept for one version of a tenant's config.
DERIVED_MAX = 1_000


class Snapshot:
    """A tenant's config at one version. It never changes, so values derived from it stay valid."""

    __slots__ = ("derived", "entities", "needs")

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        #: A template's code and locale → the variables that it names, where that was asked.
        self.needs: dict[tuple[str, str | None], frozenset[str]] = {}
        #: Key → the derived value, and the versions of the entities it was derived from.
        self.derived: dict[object, tuple[Any, dict[str, int]]] = {}


NOTHING = Snapshot({})


class ConfigCache:
    """The config of every tenant that this process has read; `apply` brings it up to date."""

    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        declared: Mapping[str, str],
        events: EventStore,
        writer: ConfigWriter,
    ) -> None:
        """`declared`: credential → digest of the secret that this process's flows declare."""
        self._kinds = {kind: body for flow in flows.values() for kind, body in flow.config.items()}
        self._versions: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._snapshots: dict[str, Snapshot] = {}
        #: Tenant → kind and code → changes so far, also of deleted entities.
        self._changes: dict[str, Counter[tuple[str, str]]] = {}
        self._events, self._writer = events, writer
        #: Kinds that some tenant has ever stored, as far as this process has read.
        self.seen: set[str] = set()
        self.pauses = PauseBook(declared)
        #: Tenant → id of each API key on record, oldest first → whether it was revoked.
        self.keys: dict[str, dict[str, bool]] = {}

    def kind(self, name: str) -> type[ConfigBody]:
        if name not in self._kinds:
            raise NotFound(
                "config kind",
                name,
                f"; known: {', '.join(sorted(self._kinds)) or 'none'}{how_to_add(name)}",
            )
        return self._kinds[name]

    @property
    def kinds(self) -> Mapping[str, type[ConfigBody]]:
        return self._kinds

    def forget(self, tenant: str) -> None:
        """Free the memory of a tenant that has no config."""
        if not self._versions.get(tenant):
            self._tenants.pop(config_stream(tenant), None)

    def version(self, tenant: str) -> int:
        known = self._versions.get(tenant, 0)
        if not known:
            self._tenants[config_stream(tenant)] = tenant
        return known

    async def refresh(self, *tenants: str) -> None:
        """Read the new events in the streams of these tenants."""
        self.apply(
            await self._events.read([(config_stream(one), self.version(one)) for one in tenants])
        )

    def apply(self, changes: list[Recorded]) -> list[tuple[Recorded, Exception]]:
        """Fold newer events of config streams that `version` was called for.

        Returns the events that cannot be read; they are left out.
        """
        poison: list[tuple[Recorded, Exception]] = []
        # A running attempt keeps its snapshot, so an old address never meets a new secret.
        fresh: dict[str, Entities] = {}
        for recorded in changes:
            tenant = self._tenants.get(recorded.stream)
            if tenant is None:
                # `forget` was called while the events were read.
                tenant = decode_meta(recorded.meta).tenant
            if recorded.version != self.version(tenant) + 1:
                continue
            self._versions[tenant] = recorded.version
            try:
                if recorded.type in (PAUSED, RESUMED):
                    self.pauses.fold(tenant, recorded)
                elif recorded.type == KEY_CREATED:
                    created = msgspec.json.decode(recorded.data, type=KeyCreated)
                    self.keys.setdefault(tenant, {}).setdefault(created.id, False)
                elif recorded.type == KEY_REVOKED:
                    revoked = msgspec.json.decode(recorded.data, type=KeyRevoked)
                    self.keys.setdefault(tenant, {})[revoked.id] = True
                elif recorded.type in (PUT, DELETED):
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
            name = (put.kind, put.code)
            self.pauses.changed(tenant, "/".join(name))
            changes = self._changes.setdefault(tenant, Counter())
            changes[name] += 1
            if (body := self._kinds.get(put.kind)) is None:
                return
            self.seen.add(put.kind)
            version, position = changes[name], recorded.version
            try:
                decoded = msgspec.json.decode(put.body, type=body)
                entities[name] = Entity(*name, decoded, put.secrets, version, position)
            except msgspec.DecodeError as error:
                entities[name] = Unreadable(*name, str(error), put.secrets, version, position)
        elif recorded.type == DELETED:
            deleted = msgspec.json.decode(recorded.data, type=EntityDeleted)
            self.pauses.changed(tenant, f"{deleted.kind}/{deleted.code}")
            entities.pop((deleted.kind, deleted.code), None)

    def next_version(self, tenant: str, kind: str, code: str) -> int:
        """The version of the entity after its next change."""
        return self._changes.get(tenant, Counter())[kind, code] + 1

    def is_newest(self, config: TenantConfig) -> bool:
        """Whether this process has read no later change of its tenant's config."""
        return self._snapshots.get(config.tenant, NOTHING) is config.snapshot

    async def fresh(self, tenant: str) -> TenantConfig:
        """The config with all changes until now, also those of other processes."""
        await self.refresh(tenant)
        return self.of(tenant)

    def of(self, tenant: str) -> TenantConfig:
        return TenantConfig(tenant, self._snapshots.get(tenant, NOTHING), self._writer)


class TenantConfig:
    """One tenant's config as an attempt sees it."""

    __slots__ = ("_entities", "_writer", "opened", "snapshot", "tenant", "used")

    def __init__(self, tenant: str, snapshot: Snapshot, writer: ConfigWriter) -> None:
        self.tenant, self.snapshot, self._writer = tenant, snapshot, writer
        self._entities = snapshot.entities
        #: Secrets that the attempt has read; its outcome is redacted with them.
        self.opened: list[str] = []
        #: `kind/code` → version of the entities that the attempt has read.
        self.used: dict[str, int] = {}

    def get(self, kind: str, code: str) -> Entity | None:
        """The entity. Raises BadConfig when the stored body no longer fits its type."""
        entity = self._entities.get((kind, code))
        if isinstance(entity, Unreadable):
            raise BadConfig(kind, code, {"body": f"{entity.error}; put it again"})
        if entity is not None:
            self.used[f"{kind}/{code}"] = entity.version
        return entity

    def derived(
        self,
        key: object,
        make: Callable[Concatenate[TenantConfig, P], T],
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        """The value of `make(config, …)`, kept until the config changes.

        It must depend on `key` and `get` alone and contain no secret.
        """
        known = self.snapshot.derived.get(key)
        if known is None:
            own = TenantConfig(self.tenant, self.snapshot, self._writer)
            try:
                known = make(own, *args, **named), own.used
            finally:
                self.used |= own.used
            if len(self.snapshot.derived) >= DERIVED_MAX:
                self.snapshot.derived.clear()
            self.snapshot.derived[key] = known
        self.used |= known[1]
        made: T = known[0]
        return made

    @property
    def needs(self) -> dict[tuple[str, str | None], frozenset[str]]:
        return self.snapshot.needs

    def find(self, kind: str, code: str) -> Entity | Unreadable | None:
        """The stored entity, readable or not."""
        return self._entities.get((kind, code))

    def version_of(self, credential: str) -> int:
        """The version of the entity that `kind/code` names; 0 when there is none."""
        kind, _, code = credential.partition("/")
        found = self.find(kind, code)
        return 0 if found is None else found.version

    def entities(self) -> list[Entity]:
        return [
            entity for _, entity in sorted(self._entities.items()) if isinstance(entity, Entity)
        ]

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        """The secret in clear, newest first; during a rotation also the previous one."""
        known = self.secrets_at_hand(kind, code, field)
        if known is not None:
            return known
        try:
            secrets = await self._writer.open(self.tenant, self._entities.get((kind, code)), field)
            self.opened += secrets
            return secrets
        except StoreError as error:
            # Nothing was sent: the secret is needed for that.
            raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None

    def secrets_at_hand(self, kind: str, code: str, field: str) -> list[str] | None:
        """What `secrets` returns, if this process has decrypted it before; else None."""
        secrets = self._writer.at_hand(self.tenant, self._entities.get((kind, code)), field)
        if secrets is not None:
            self.opened += secrets
        return secrets

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """Disable an entity that has the fields `disabled` and `disabled_reason`."""
        entity = self.get(kind, code)
        if entity is not None:
            body = msgspec.structs.replace(entity.body, disabled=True, disabled_reason=reason)
            if await self._writer.amend(self.tenant, entity, body):
                self._writer.disabled(self.tenant, kind, code, reason)

    def reference(self, text: str) -> str:
        """The value behind `env:NAME`; any other text is its own value.

        Raises KeyError when it is not set.
        """
        secret = self._writer.reference(text)
        self.opened.append(secret)
        return secret


def not_stored(kind: str, code: str) -> str:
    """The detail of an attempt that fails because of missing config, with the remedy."""
    return (
        f"the tenant has no {kind} {code}; store it, then redrive the request: gesta"
        f" {put_command(kind, code)} (or PUT /v1/config/{kind}/{code})"
    )
