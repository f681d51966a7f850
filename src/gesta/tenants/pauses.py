"""What is paused: told by events of config streams, which workers read with every batch of jobs, so
a pause counts at the next take.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

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


#: In the place of a digest: the program declares a secret that its process does not have.
NOT_SET = ""


class Refusal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which form of a credential a provider refused: a version of the entity or, where there is
    none, what programs declare themselves.
    """

    version: int = 0
    #: Keyed digests of what programs declare, or NOT_SET; more than one where processes declare
    #: different things.
    declared: tuple[str, ...] = ()
    #: The tenant has not stored the entity at all.
    missing: bool = False


class Paused(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Stored in the tenant's config stream, or in the installation's when it concerns every
    tenant.
    """

    flow: str | None = None
    credential: str | None = None
    reason: str = ""
    #: The engine's own pause, because of a provider. It ends by itself when the credential changes.
    refusal: Refusal | None = None


class Resumed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a person resumes goes on, whoever had paused it."""

    flow: str | None = None
    credential: str | None = None
    #: Only the engine's own pause has ended; what a person has paused stays so.
    refusal: bool = False


class Scope(msgspec.Struct, frozen=True):
    """Whose requests a pause is about: a flow's, a tenant's, both together, those that use one of a
    tenant's credentials; or all.
    """

    flow: str | None = None
    tenant: str | None = None
    #: `kind/code` of the tenant's config entity.
    credential: str | None = None
    #: Because a provider refuses the credential, beside whatever people have paused.
    is_refused: bool = False

    @property
    def owner(self) -> str:
        """Whose config stream tells of it."""
        return self.tenant or INSTALLATION

    def __str__(self) -> str:
        """What its jobs are held under, and what people read.

        Tenants and flows have no blanks; a credential comes last.
        """
        if self == EVERYTHING:
            return "everything"
        parts = {
            "tenant": self.tenant,
            "flow": self.flow,
            "refused" if self.is_refused else "credential": self.credential,
        }
        return " ".join(f"{name}:{value}" for name, value in parts.items() if value is not None)


#: Every request of every tenant: what a store that was copied is under until somebody lets it go
#: on.
EVERYTHING = Scope()


class Pause(msgspec.Struct, frozen=True):
    scope: Scope
    reason: str
    since_ms: int
    #: Who decided, where that was told.
    by: str
    refusal: Refusal | None = None

    @property
    def kind(self) -> Literal["pause", "credential", "config"]:
        """What holds the requests: an operator, a refused credential or missing config."""
        if self.refusal is None:
            return "pause"
        return "config" if self.refusal.missing else "credential"


def checked(scope: Scope, reason: str = "") -> Scope:
    """The scope; raises BadScope with every fault."""
    faults = {}
    if scope == EVERYTHING:
        faults["scope"] = "say what it is about: a flow, a tenant or a credential"
    if scope.flow is not None and not _is_name(scope.flow, FLOW):
        faults["flow"] = f"{scope.flow!r} cannot be the name of a flow"
    if scope.tenant is not None and not _is_name(scope.tenant, TENANT):
        faults["tenant"] = f"{scope.tenant!r} cannot be the name of a tenant"
    if scope.credential is not None and (told := _credential_faults(scope, str(scope.credential))):
        faults["credential"] = "; ".join(told)
    if not isinstance(reason, str) or len(reason) > REASON_LENGTH_MAX or not reason.isprintable():
        faults["reason"] = f"at most {REASON_LENGTH_MAX} printable characters"
    if faults:
        raise BadScope(faults)
    return scope


def _is_name(given: object, pattern: re.Pattern[str]) -> bool:
    # A program may pass anything, whatever the annotations say.
    return isinstance(given, str) and pattern.fullmatch(given) is not None


def _credential_faults(scope: Scope, credential: str) -> list[str]:
    faults = []
    kind, _, code = credential.partition("/")
    if (
        not kind
        or not code
        or len(credential) > CREDENTIAL_LENGTH_MAX
        or not credential.isprintable()
    ):
        faults.append("write kind/code, for instance webhook.endpoint/shop")
    if scope.tenant is None:
        faults.append("it is a tenant's; name the tenant, too")
    if scope.flow is not None:
        faults.append("its kind names the flow already; leave the flow out")
    return faults


class PauseBook:
    """Every pause in the config streams that this process has read, as far as it has read them."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        """`declared`: credential → digest of what the programs of this process declare for it."""
        self.declared = declared
        self._by_owner: dict[str, dict[Scope, Pause]] = {}

    def fold(self, owner: str, recorded: Recorded) -> None:
        """One event more of the owner's config stream; raises msgspec.DecodeError when it cannot be
        read.
        """
        tenant = None if owner == INSTALLATION else owner
        pauses = self._by_owner.setdefault(owner, {})
        if recorded.type == PAUSED:
            told, meta = msgspec.json.decode(recorded.data, type=Paused), decode_meta(recorded.meta)
            scope = Scope(told.flow, tenant, told.credential, told.refusal is not None)
            by = "" if meta.actor is None else meta.actor.user_id
            pauses[scope] = Pause(scope, told.reason, meta.occurred_at, by, told.refusal)
        elif recorded.type == RESUMED:
            gone = msgspec.json.decode(recorded.data, type=Resumed)
            pauses.pop(Scope(gone.flow, tenant, gone.credential, is_refused=True), None)
            if not gone.refusal:
                pauses.pop(Scope(gone.flow, tenant, gone.credential), None)

    def changed(self, tenant: str, credential: str) -> None:
        """The entity was put again or deleted: what was refused is no longer what is used."""
        if pauses := self._by_owner.get(tenant):
            pauses.pop(Scope(None, tenant, credential, is_refused=True), None)

    def is_ours(self, pause: Pause) -> bool:
        """Whether a pause holds what this process would do.

        Not when a provider refused what another process declares, or that has none.
        """
        refused = () if pause.refusal is None else pause.refusal.declared
        ours = self.declared.get(pause.scope.credential or "", NOT_SET)
        return not refused or ours == NOT_SET or ours in refused

    @property
    def is_empty(self) -> bool:
        return not any(self._by_owner.values())

    def get(self, scope: Scope) -> Pause | None:
        return self._by_owner.get(scope.owner, {}).get(scope)

    def of(self, owner: str) -> list[Pause]:
        return list(self._by_owner.get(owner, {}).values())

    def covering(
        self, tenant: str, flow: str, credential: Callable[[], str | None]
    ) -> Pause | None:
        """The pause that holds a request of this tenant and flow.

        `credential` is asked only where one is paused.
        """
        everybodys = self._by_owner.get(INSTALLATION)
        own = self._by_owner.get(tenant)
        if everybodys and (found := everybodys.get(EVERYTHING) or everybodys.get(Scope(flow))):
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
    """`kind/code` of the config that a request uses, as its flow tells; None where it uses none."""
    if flow is None or flow.credential is None:
        return None
    try:
        told: object = flow.credential(
            _legible(flow.payload, payload)
            if MARK in payload
            else msgspec.json.decode(payload, type=flow.payload)
        )
        return told if isinstance(told, str) else None
    except Exception:  # noqa: BLE001
        # A program's own function, and a payload that may fit no longer: the attempt will tell.
        return None


def _legible(kind: type[Payload], payload: bytes) -> Payload:
    """The payload with whatever is sealed in it left as it is: a credential is nobody's personal
    data, and no key is asked for.
    """
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
    """Credential → digest of what these flows declare for it; NOT_SET for what is not set in this
    process.
    """
    digests: dict[str, str] = {}
    for flow in flows:
        for credential, texts in flow.declared.items():
            try:
                digests[credential] = identity.secret([reference(text) for text in texts])
            except KeyError:
                digests[credential] = NOT_SET
    return digests
