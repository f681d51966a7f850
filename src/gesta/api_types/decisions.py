"""What waits for a person: dead letters and unknown outcomes."""

from typing import Literal

import msgspec

from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.structs import Representation


class ErrorInfo(msgspec.Struct, frozen=True, rename="camel"):
    error_type: str
    error_message: str
    attempt_count: int
    last_attempt_time: str


class DlqMetadata(msgspec.Struct, frozen=True, rename="camel"):
    sent_to_dlq_at: str
    original_queue: str
    expires_at: str


class Original(msgspec.Struct, frozen=True, rename="camel"):
    flow: str
    tenant: str
    request_id: str
    stream: str
    version: int
    key: str | None
    test: bool = False


class DeadLetter(msgspec.Struct, frozen=True, rename="camel"):
    """A pointer to the request, never its payload; texts are scrubbed before they are recorded."""

    original: Original
    error_info: ErrorInfo
    dlq_metadata: DlqMetadata
    last_failure_reason: str


class DeadLetters(Representation, frozen=True):
    """Newest first.

    `next` continues the list, also where a page is short or empty; null: that was all.
    """

    items: list[DeadLetter]
    next: str | None


class Redriven(Representation, frozen=True, omit_defaults=True):
    """What became of one: `refused` when its state does not allow it, which `problem` explains."""

    id: str
    flow: str
    verdict: Literal["redriven", "refused"]
    problem: ProblemRepresentation | None = None


class RedrivenMany(Representation, frozen=True):
    """`next` is the cursor for those that are left; null: there are none."""

    redriven: int
    refused: int
    results: list[Redriven]
    next: str | None


class UnknownOutcome(Representation, frozen=True):
    """It may have had its effect, or not.

    `since` is when that was last known to be open, `ageSeconds` how long ago.
    """

    id: str
    flow: str
    key: str | None
    reason: str
    detail: str
    attempts: int
    created_at: str
    since: str
    age_seconds: int
    correlation_id: str


class UnknownOutcomes(Representation, frozen=True):
    """Newest first.

    `next` continues the list, also where a page is short or empty; null: that was all.
    """

    items: list[UnknownOutcome]
    next: str | None
