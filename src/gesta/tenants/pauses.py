"""The pauses of tenants, folded from config streams.

Workers read those with every batch of jobs, so a pause applies to the next lease.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from gesta.api_types.requests import HeldBy
from gesta.domain.codec import decode_meta
from gesta.domain.ids import FLOW, TENANT
from gesta.domain.stream_names import INSTALLATION
from gesta.errors import BadScope
from gesta.flows.flow import Flow, Payload
from gesta.flows.personal_fields import decode_object
from gesta.ports.event_store import Recorded
from gesta.security.field_encryption import MARK
from gesta.security.keyed_digests import KeyedDigests

PAUSED, RESUMED = "config.Paused.v1", "config.Resumed.v1"
REASON_LENGTH_MAX = 500
CREDENTIAL_LENGTH_MAX = 200


#: In place of a digest: the program declares a secret that is not set in its process.
NOT_SET = ""


class Refusal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The refused form of a credential: a version of the entity, or what programs declare."""

    version: int = 0
    #: Keyed digests of what programs declare, or NOT_SET; several if processes differ.
    declared: tuple[str, ...] = ()
    #: The tenant has not stored the entity at all.
    missing: bool = False


class Paused(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """In the tenant's config stream, or in the installation's for all tenants."""

    flow: str | None = None
    credential: str | None = None
    reason: str = ""
    #: The engine's own pause. It ends when the credential changes.
    refusal: Refusal | None = None


class Resumed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A person's resume ends the pauses of people and of the engine."""

    flow: str | None = None
    credential: str | None = None
    #: Only the engine's own pause has ended.
    refusal: bool = False


class Scope(msgspec.Struct, frozen=True):
    """The requests of a pause: a flow, a tenant, both, a tenant's credential, or everything."""

    flow: str | None = None
    tenant: str | None = None
    #: `kind/code` of the tenant's config entity.
    credential: str | None = None
    #: The engine's own pause: the credential is refused or missing.
    is_refused: bool = False

    @property
    def owner(self) -> str:
        """The tenant, or the installation, whose config stream has the pause."""
        return self.tenant or INSTALLATION

    def __str__(self) -> str:
        """The name under which jobs are held. The credential is last: it may contain blanks."""
        if self == EVERYTHING:
            return "everything"
        parts = {
            "tenant": self.tenant,
            "flow": self.flow,
            "refused" if self.is_refused else "credential": self.credential,
        }
        return " ".join(f"{name}:{value}" for name, value in parts.items() if value is not None)


#: Every request of every tenant. A copied store is paused so until an operator resumes it.
EVERYTHING = Scope()


class Pause(msgspec.Struct, frozen=True):
    scope: Scope
    reason: str
    since_ms: int
    by: str
    refusal: Refusal | None = None

    @property
    def kind(self) -> Literal["pause", "credential", "config"]:
        """What holds the requests: an operator, a refused credential or missing config."""
        if self.refusal is None:
            return "pause"
        return "config" if self.refusal.missing else "credential"

    @property
    def held_by(self) -> HeldBy:
        scope = self.scope
        return HeldBy(self.kind, scope.flow, scope.tenant, scope.credential, self.reason or None)


def checked(scope: Scope, reason: str = "") -> Scope:
    """The scope; raises BadScope with every error."""
    errors = {}
    if scope == EVERYTHING:
        errors["scope"] = "give a flow, a tenant or a credential"
    if scope.flow is not None and not _is_name(scope.flow, FLOW):
        errors["flow"] = f"{scope.flow!r} is not the name of a flow"
    if scope.tenant is not None and not _is_name(scope.tenant, TENANT):
        errors["tenant"] = f"{scope.tenant!r} is not the name of a tenant"
    if scope.credential is not None and (wrong := _credential_errors(scope, str(scope.credential))):
        errors["credential"] = "; ".join(wrong)
    if not isinstance(reason, str) or len(reason) > REASON_LENGTH_MAX or not reason.isprintable():
        errors["reason"] = f"at most {REASON_LENGTH_MAX} printable characters"
    if errors:
        raise BadScope(errors)
    return scope


def _is_name(given: object, pattern: re.Pattern[str]) -> bool:
    # A program may pass anything.
    return isinstance(given, str) and pattern.fullmatch(given) is not None


def _credential_errors(scope: Scope, credential: str) -> list[str]:
    errors = []
    kind, _, code = credential.partition("/")
    if (
        not kind
        or not code
        or len(credential) > CREDENTIAL_LENGTH_MAX
        or not credential.isprintable()
    ):
        errors.append("write kind/code, for instance webhook.endpoint/shop")
    if scope.tenant is None:
        errors.append("a credential belongs to a tenant; also give the tenant")
    if scope.flow is not None:
        errors.append("the kind of the credential implies the flow; leave out the flow")
    return errors


class PauseBook:
    """Every pause in the config streams, as far as this process has read them."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        """`declared`: credential → digest of the secret that this process's flows declare."""
        self.declared = declared
        #: Only owners that have a pause: every submit asks whether there is any.
        self._by_owner: dict[str, dict[Scope, Pause]] = {}

    def fold(self, owner: str, recorded: Recorded) -> None:
        """Fold an event of the owner's config stream; raises msgspec.DecodeError."""
        tenant = None if owner == INSTALLATION else owner
        if recorded.type == PAUSED:
            made, meta = msgspec.json.decode(recorded.data, type=Paused), decode_meta(recorded.meta)
            scope = Scope(made.flow, tenant, made.credential, made.refusal is not None)
            by = "" if meta.actor is None else meta.actor.user_id
            pause = Pause(scope, made.reason, meta.occurred_at, by, made.refusal)
            self._by_owner.setdefault(owner, {})[scope] = pause
        elif recorded.type == RESUMED:
            gone = msgspec.json.decode(recorded.data, type=Resumed)
            self._remove(owner, Scope(gone.flow, tenant, gone.credential, is_refused=True))
            if not gone.refusal:
                self._remove(owner, Scope(gone.flow, tenant, gone.credential))

    def _remove(self, owner: str, scope: Scope) -> None:
        pauses = self._by_owner.get(owner)
        if pauses is not None and pauses.pop(scope, None) is not None and not pauses:
            del self._by_owner[owner]

    def changed(self, tenant: str, credential: str) -> None:
        """The entity was put or deleted: the refused form is no longer in use."""
        self._remove(tenant, Scope(None, tenant, credential, is_refused=True))

    def is_ours(self, pause: Pause) -> bool:
        """Whether a pause applies to this process: not if its own secret was never refused."""
        refused = () if pause.refusal is None else pause.refusal.declared
        ours = self.declared.get(pause.scope.credential or "", NOT_SET)
        return not refused or ours == NOT_SET or ours in refused

    @property
    def is_empty(self) -> bool:
        return not self._by_owner

    def get(self, scope: Scope) -> Pause | None:
        return self._by_owner.get(scope.owner, {}).get(scope)

    def of(self, owner: str) -> list[Pause]:
        return list(self._by_owner.get(owner, {}).values())

    def covering(
        self, tenant: str, flow: str, credential: Callable[[], str | None]
    ) -> Pause | None:
        """The pause that holds a request. `credential` is called only if one is paused."""
        of_all = self._by_owner.get(INSTALLATION)
        own = self._by_owner.get(tenant)
        if of_all and (found := of_all.get(EVERYTHING) or of_all.get(Scope(flow))):
            return found
        if not own:
            return None
        found = own.get(Scope(None, tenant)) or own.get(Scope(flow, tenant))
        if (
            found is None
            and any(scope.credential is not None for scope in own)
            and (used := credential()) is not None
        ):
            refused = own.get(Scope(None, tenant, used, is_refused=True))
            found = own.get(Scope(None, tenant, used)) or (
                refused if refused is not None and self.is_ours(refused) else None
            )
        return found


def credential_of(flow: Flow | None, payload: bytes) -> str | None:
    """`kind/code` of the credential that a request uses, as its flow names it."""
    if flow is None or flow.credential is None:
        return None
    try:
        used: object = flow.credential(
            _legible(flow.payload, payload)
            if MARK in payload
            else msgspec.json.decode(payload, type=flow.payload)
        )
        return used if isinstance(used, str) else None
    except Exception:  # noqa: BLE001
        # The function is the program's, and the payload may not fit any more: the attempt decides.
        return None


def _legible(kind: type[Payload], payload: bytes) -> Payload:
    """The payload with its encrypted fields left encrypted: a credential is not personal."""
    parts = decode_object(payload)
    fields = {}
    for field in msgspec.structs.fields(kind):
        raw = parts.get(field.encode_name)
        if raw is not None:
            fields[field.name] = (
                _as_text(msgspec.json.decode(raw))
                if MARK in bytes(raw)
                else msgspec.json.decode(raw, type=field.type)
            )
    return kind(**fields)


def _as_text(encrypted: object) -> object:
    """Text in place of what is encrypted: constructors check no types, but a payload's
    `__post_init__` may compare or normalise its texts.
    """
    return [str(one) for one in encrypted] if isinstance(encrypted, list) else str(encrypted)


def declared_digests(
    flows: Iterable[Flow], reference: Callable[[str], str], identity: KeyedDigests
) -> dict[str, str]:
    """Credential → digest of the secret that these flows declare, or NOT_SET."""
    digests: dict[str, str] = {}
    for flow in flows:
        for credential, texts in flow.declared.items():
            try:
                digests[credential] = identity.secret([reference(text) for text in texts])
            except KeyError:
                digests[credential] = NOT_SET
    return digests
