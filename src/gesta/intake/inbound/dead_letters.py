"""The dead letter of a request that an inbound event led to, in the form of the boundary queue."""

from collections.abc import Iterable

import msgspec

from gesta.domain import events as e
from gesta.domain.durations import iso
from gesta.domain.event_message import (
    DeadLetterMessage,
    EventMessage,
    encode_message,
    error_info,
    wrapped,
)
from gesta.ports.read_model import View
from gesta.runtime.redaction import scrub


class _Payload(msgspec.Struct, frozen=True):
    """The part of a payload that names its event."""

    event: EventMessage | None = None


def dead_letter_of(
    view: View, history: Iterable[tuple[e.Event | None, e.Meta]]
) -> DeadLetterMessage | None:
    """None: no event led to the request.

    There are three separate counters: `attemptCount` counts the tries since the last redrive,
    `receiveCount` every time that a worker took it up, `retryCount` the redrives.
    """
    try:
        event = msgspec.json.decode(view.payload, type=_Payload).event
    except msgspec.DecodeError:
        return None
    if event is None:
        return None
    state, lines = view.state, list[str]()
    redrives = returns = 0
    for one, meta in history:
        if isinstance(one, e.Updated):
            redrives += one.change == "redrive"
            returns += one.change in ("postponed", "held")
        elif isinstance(one, e.AttemptFailed | e.OutcomeUnknown | e.Failed):
            detail = one.last_error if isinstance(one, e.Failed) else one.detail
            lines.append(f"{iso(meta.occurred_at)} {one.reason}: {detail}")
            lines += [one.traceback] if one.traceback else []
    said = f"{state.reason}: {state.detail}" if state.detail else state.reason
    error = error_info(
        "ProcessingError",
        scrub(said),
        scrub_lines(lines) or state.reason,
        attempts=state.attempts - state.attempts_before,
        last_attempt_ms=state.updated_at,
    )
    original = msgspec.structs.replace(event, retry_count=event.retry_count + redrives)
    return wrapped(
        encode_message(original),
        error,
        at_ms=state.updated_at,
        queue_arn=f"gesta:queue:{state.flow}",
        receives=state.attempts + returns,
    )


def scrub_lines(lines: Iterable[str]) -> str:
    """Each line is redacted by itself, because a long text is cut."""
    return "\n".join(scrub(line) for text in lines for line in text.splitlines())
