"""Dead letters: requests that failed for good, each with the record that an operator needs
(X-9).
"""

from datetime import UTC, datetime

from gesta.api_types.decisions import DeadLetter, DlqMetadata, ErrorInfo, Original
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.flows.flow import Flow


def dead_letter(state: State, flow: Flow | None, now_ms: int) -> DeadLetter | None:
    """The dead letter of a failed request; None when it is not one, was purged or has been kept
    long enough.
    """
    keep_ms = round(
        (flow.dead_letter_seconds if flow is not None else Flow.dead_letter_seconds) * 1000
    )
    if state.status != "failed" or state.purged or now_ms >= state.updated_at + keep_ms:
        return None
    failed_at = iso(state.updated_at)
    return DeadLetter(
        Original(
            state.flow,
            state.tenant,
            state.id,
            request_stream(state.flow, state.tenant, state.id),
            state.version,
            state.key,
            state.test,
        ),
        ErrorInfo(state.reason, state.detail, state.attempts, failed_at),
        DlqMetadata(failed_at, state.flow, iso(state.updated_at + keep_ms)),
        state.reason,
    )


def iso(at_ms: int) -> str:
    """Epoch milliseconds as ISO-8601 in UTC with a Z."""
    return (
        datetime.fromtimestamp(at_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
