"""What was shown (shapes.py), read back for those who put it into words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gesta.api_types.representations import EventShape, RequestShape
from gesta.domain.codec import event_types
from gesta.domain.events import Event
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State


def ms_of(text: str) -> int:
    """ISO-8601 as epoch milliseconds."""
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def state_of(shape: RequestShape) -> State:
    """The request as its events tell it, as far as it is shown."""
    fields = {field.name for field in msgspec.structs.fields(State)}
    known: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(shape).items() if name in fields
    }
    times = {
        name: ms_of(value)
        for name, value in known.items()
        if name.endswith("_at") and value is not None
    }
    phase = lifecycle_of(shape.flow).phase_of(shape.status)
    return State(**{**known, **times, "attempts": shape.attempt_count, "phase": phase})


def event_of(shape: EventShape, flow: str) -> Event | None:
    """What happened; None for what a newer gesta has written."""
    times = {
        name: ms_of(value)
        for name, value in shape.data.items()
        if name.endswith("At") and isinstance(value, str)
    }
    # The payload stands with its request and not here, and an event that has one cannot be read
    # without.
    data = {"payload": {}, **shape.data, **times}
    try:
        return event_types(flow).decode(shape.type, msgspec.json.encode(data))
    except ValueError:
        return None
