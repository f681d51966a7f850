"""What was shown (shapes.py), read back for those who put it into words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gesta.api_types.requests import EventRepresentation, RequestRepresentation
from gesta.domain.codec import event_types
from gesta.domain.events import Event
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State


def ms_of(text: str) -> int:
    """ISO-8601 as epoch milliseconds."""
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def state_of(shown: RequestRepresentation) -> State:
    """The request as its events tell it, as far as it is shown."""
    fields = {field.name for field in msgspec.structs.fields(State)}
    known: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(shown).items() if name in fields
    }
    times = {
        name: ms_of(value)
        for name, value in known.items()
        if name.endswith("_at") and value is not None
    }
    phase = lifecycle_of(shown.flow).phase_of(shown.status)
    return State(**{**known, **times, "attempts": shown.attempt_count, "phase": phase})


def event_of(shown: EventRepresentation, flow: str) -> Event | None:
    """What happened; None for what a newer gesta has written."""
    times = {
        name: ms_of(value)
        for name, value in shown.data.items()
        if name.endswith("At") and isinstance(value, str)
    }
    # The payload stands with its request and not here, and an event that has one cannot be read
    # without.
    data = {"payload": {}, **shown.data, **times}
    try:
        return event_types(flow).decode(shown.type, msgspec.json.encode(data))
    except ValueError:
        return None
