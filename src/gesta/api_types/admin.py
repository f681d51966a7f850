"""What people who run gesta see: flows, counts, pauses, what was quarantined or erased."""

from typing import Any

from gesta.api_types.structs import ListOf, Representation
from gesta.domain.lifecycles import Status
from gesta.domain.outcome import UnknownPolicy


class FlowRepresentation(Representation, frozen=True):
    """`payload` is a JSON schema; what is `x-personal` in it is stored sealed.

    `external`: others execute it, by POST /v1/flows/{flow}/work.
    """

    name: str
    payload: dict[str, Any]
    external: bool
    on_unknown: UnknownPolicy
    attempts: int
    ttl_seconds: float | None
    #: Kinds of config that it uses.
    config: list[str]


class Flows(ListOf[FlowRepresentation], frozen=True):
    """The flows of the process that answers."""


class Count(Representation, frozen=True):
    flow: str
    status: Status
    count: int


class Counts(ListOf[Count], frozen=True):
    """Requests by flow and status."""


class QuarantinedRepresentation(Representation, frozen=True):
    what: str
    tenant: str | None
    name: str
    version: int
    error: str
    at: str


class QuarantinedList(ListOf[QuarantinedRepresentation], frozen=True):
    """Newest first."""


class PauseRepresentation(Representation, frozen=True):
    scope: str
    flow: str | None
    tenant: str | None
    credential: str | None
    reason: str | None
    since: str
    refused: bool
    by: str | None
    held: int


class Pauses(ListOf[PauseRepresentation], frozen=True):
    """Everything that holds requests of the tenant."""


class Resumed(Representation, frozen=True):
    """How many jobs were held and go on."""

    held: int


class ErasedRepresentation(Representation, frozen=True):
    """How many keys were destroyed; 0: there was none left, or never one."""

    destroyed: int
