"""Types for operators: flows, counts, pauses, quarantine, erasure."""

from typing import Any

from gesta.api_types.structs import Representation
from gesta.domain.lifecycles import Status
from gesta.domain.outcome import UnknownPolicy


class FlowRepresentation(Representation, frozen=True):
    """`payload` is a JSON schema; fields with `x-personal` are stored encrypted.

    `external`: external workers execute it, by POST /v1/flows/{flow}/work. `attempts` is how many
    attempts a request may have.
    """

    name: str
    payload: dict[str, Any]
    external: bool
    on_unknown: UnknownPolicy
    attempts: int
    ttl_seconds: float | None
    #: Kinds of config that the flow uses.
    config: list[str]


class Count(Representation, frozen=True):
    flow: str
    status: Status
    count: int


class QuarantinedRepresentation(Representation, frozen=True):
    what: str
    tenant: str | None
    name: str
    version: int
    error: str
    at: str


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


class Resumed(Representation, frozen=True):
    """`held` is the number of jobs that were held and continue now."""

    held: int


class ErasedRepresentation(Representation, frozen=True):
    """How many keys were destroyed; 0 when the person has no key."""

    destroyed: int
