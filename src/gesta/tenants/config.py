"""Config of a tenant: one stream of entities by kind and code, and of pauses; secrets in the vault,
read at execution, never stale.

The worker reads the stream's head with every batch, so a change counts for the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import msgspec

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
    kind: str
    code: str
    body: msgspec.Raw
    secrets: dict[str, tuple[SecretRef, ...]] = {}


class EntityDeleted(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    code: str


class KeyCreated(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An API key was about to be made; the vault alone says whether it was."""

    id: str
    name: str
    scopes: tuple[str, ...]
    test: bool = False
    expires_at: int | None = None


class KeyRevoked(msgspec.Struct, frozen=True, rename="camel"):
    """From then on the key opened nothing."""

    id: str


class AddressSuppressed(msgspec.Struct, frozen=True, rename="camel"):
    """A person decided that an address gets no more messages of a flow.

    `id` names its entry, a digest; the list has the reason.
    """

    flow: str
    id: str


class AddressUnsuppressed(msgspec.Struct, frozen=True, rename="camel"):
    """Messages of a flow may go to an address again. `id` named its entry."""

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
    filter: dict[str, str]
    matched: int
    asked: msgspec.Raw


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
)
PUT, DELETED = "config.EntityPut.v1", "config.EntityDeleted.v1"
KEY_CREATED, KEY_REVOKED = "config.KeyCreated.v1", "config.KeyRevoked.v1"
SUPPRESSED, UNSUPPRESSED = "config.AddressSuppressed.v1", "config.AddressUnsuppressed.v1"
HANDLER_FORGOTTEN = "config.HandlerForgotten.v1"
ERASED = "config.SubjectErased.v1"
BULK_STARTED = "config.BulkStarted.v1"
#: Event → the type that it is stored under; its metadata says when and who decided. The stream also
#: records what was done elsewhere (keys, addresses, handlers, subjects): a tenant has no other.
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
}


class Entity(msgspec.Struct, frozen=True):
    """What a tenant stored by code. `body` has its secret fields blank."""

    kind: str
    code: str
    body: ConfigBody
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int


class Unreadable(msgspec.Struct, frozen=True):
    """An entity whose stored body no longer fits its type.

    It is there, so it must not look as if it were missing.
    """

    kind: str
    code: str
    fault: str
    secrets: Mapping[str, tuple[SecretRef, ...]]
    version: int


Entities = dict[tuple[str, str], Entity | Unreadable]
#: Kept of what was made of one version of a tenant's config; more is made anew.
DERIVED_MAX = 1_000


class Snapshot:
    """A tenant's config at one version.

    It never changes, so what was made of it holds for as long as it is the newest.
    """

    __slots__ = ("derived", "entities", "needs")

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        #: A template's code and locale → the variables it names, for those that were asked.
        self.needs: dict[tuple[str, str | None], frozenset[str]] = {}
        #: What was made, and `kind/code` → version of what it was made of.
        self.derived: dict[object, tuple[Any, dict[str, int]]] = {}


NOTHING = Snapshot({})


class ConfigCache:
    """All tenants' config that this process has seen, each at a stream version; brought up to date
    by `apply`.
    """

    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        declared: Mapping[str, str],
        events: EventStore,
        writer: ConfigWriter,
    ) -> None:
        """`declared`: credential → digest of what the flows of this process declare for it
        themselves.
        """
        self._kinds = {kind: body for flow in flows.values() for kind, body in flow.config.items()}
        self._versions: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._events, self._writer = events, writer
        #: Kinds of which some tenant that was read here ever stored an entity.
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
        """Every kind that this process knows, by name."""
        return self._kinds

    def forget(self, tenant: str) -> None:
        """As if it had never been asked for; for a tenant that has no config."""
        if not self._versions.get(tenant):
            self._tenants.pop(config_stream(tenant), None)

    def version(self, tenant: str) -> int:
        known = self._versions.get(tenant, 0)
        if not known:
            self._tenants[config_stream(tenant)] = tenant
        return known

    async def refresh(self, tenant: str) -> None:
        """Read what is new in the tenant's stream."""
        self.apply(await self._events.read([(config_stream(tenant), self.version(tenant))]))

    def apply(self, changes: list[Recorded]) -> list[tuple[Recorded, Exception]]:
        """Fold newer events of config streams that `version` was asked for.

        The ones that cannot be read are left out and told.
        """
        poison: list[tuple[Recorded, Exception]] = []
        # Attempts that run keep what they began with: an old address never meets a new secret.
        fresh: dict[str, Entities] = {}
        for recorded in changes:
            tenant = self._tenants.get(recorded.stream)
            if tenant is None:
                # Forgotten while it was read, because somebody else had just found nothing.
                tenant = decode_meta(recorded.meta).tenant
            if recorded.version != self.version(tenant) + 1:
                continue
            self._versions[tenant] = recorded.version
            try:
                if recorded.type in (PAUSED, RESUMED):
                    self.pauses.fold(tenant, recorded)
                elif recorded.type == KEY_CREATED:
                    made = msgspec.json.decode(recorded.data, type=KeyCreated)
                    self.keys.setdefault(tenant, {}).setdefault(made.id, False)
                elif recorded.type == KEY_REVOKED:
                    ended = msgspec.json.decode(recorded.data, type=KeyRevoked)
                    self.keys.setdefault(tenant, {})[ended.id] = True
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
            self.pauses.changed(tenant, f"{put.kind}/{put.code}")
            if (body := self._kinds.get(put.kind)) is None:
                return
            self.seen.add(put.kind)
            entity: Entity | Unreadable
            try:
                entity = Entity(
                    put.kind,
                    put.code,
                    msgspec.json.decode(put.body, type=body),
                    put.secrets,
                    recorded.version,
                )
            except msgspec.DecodeError as error:
                entity = Unreadable(put.kind, put.code, str(error), put.secrets, recorded.version)
            entities[put.kind, put.code] = entity
        elif recorded.type == DELETED:
            gone = msgspec.json.decode(recorded.data, type=EntityDeleted)
            self.pauses.changed(tenant, f"{gone.kind}/{gone.code}")
            entities.pop((gone.kind, gone.code), None)

    def is_newest(self, config: TenantConfig) -> bool:
        """Whether its tenant's config has not changed since, as far as this process has read."""
        return self._snapshots.get(config.tenant, NOTHING) is config.snapshot

    def of(self, tenant: str) -> TenantConfig:
        return TenantConfig(tenant, self._snapshots.get(tenant, NOTHING), self._writer)


class TenantConfig:
    """One tenant's config as an attempt sees it."""

    __slots__ = ("_entities", "_writer", "opened", "snapshot", "tenant", "used")

    def __init__(self, tenant: str, snapshot: Snapshot, writer: ConfigWriter) -> None:
        self.tenant, self.snapshot, self._entities, self._writer = (
            tenant,
            snapshot,
            snapshot.entities,
            writer,
        )
        #: Secrets that the attempt has in its hands; they are taken out of whatever it says.
        self.opened: list[str] = []
        #: `kind/code` → version of what was asked for by code.
        self.used: dict[str, int] = {}

    def get(self, kind: str, code: str) -> Entity | None:
        """The entity, None when there is none.

        Raises BadConfig when what is stored no longer fits its type.
        """
        entity = self._entities.get((kind, code))
        if isinstance(entity, Unreadable):
            raise BadConfig(kind, code, {"body": f"{entity.fault}; put it again"})
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
        """What `make` makes of this config, made once and kept until the config changes.

        It must depend on `key` and on what `get` says alone.

        No secret belongs in it: those are asked for at each attempt.
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
        """A template's code and locale → the variables it names, as far as somebody has asked since
        the config changed.
        """
        return self.snapshot.needs

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
        return [
            entity for _, entity in sorted(self._entities.items()) if isinstance(entity, Entity)
        ]

    async def secrets(self, kind: str, code: str, field: str) -> list[str]:
        """The secret in clear, newest first, with the one before it while their overlap lasts."""
        try:
            secrets = await self._writer.open(self.tenant, self._entities.get((kind, code)), field)
            self.opened += secrets
            return secrets
        except StoreError as error:
            # Nothing can have been sent without it.
            raise AttemptEnded(Retry("vault_unavailable", scrub(str(error)))) from None

    def secrets_at_hand(self, kind: str, code: str, field: str) -> list[str] | None:
        """What `secrets` would return, where this process has opened it before; None: it has to be
        waited for.
        """
        secrets = self._writer.at_hand(self.tenant, self._entities.get((kind, code)), field)
        if secrets is not None:
            self.opened += secrets
        return secrets

    async def disable(self, kind: str, code: str, reason: str) -> None:
        """Switch an entity off for everybody, on record.

        It must have the fields `disabled` and `disabled_reason`.
        """
        entity = self.get(kind, code)
        if entity is not None:
            body = msgspec.structs.replace(entity.body, disabled=True, disabled_reason=reason)
            await self._writer.amend(self.tenant, entity, body)

    def reference(self, text: str) -> str:
        """The value behind `env:NAME`; any other text is its own value.

        Raises KeyError when it is not set.
        """
        secret = self._writer.reference(text)
        self.opened.append(secret)
        return secret


def not_stored(kind: str, code: str) -> str:
    """What an attempt says that ends because the tenant lacks something, and what to do."""
    return (
        f"the tenant has no {kind} {code}; put it (gesta config put {kind} {code}, or PUT"
        f" /v1/config/{kind}/{code}), then redrive"
    )
