"""What is shown (shapes.py) as JSON objects, for `--json` and for tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gesta.access import ApiKey
from gesta.config import Entity
from gesta.domain.operation import State
from gesta.flows.flow import Flow
from gesta.pauses import Pause
from gesta.shapes import (
    Told,
    attempt_shapes,
    entity_shape,
    event_shape,
    key_shape,
    parked_shape,
    pause_shape,
    payload_shape,
    request_shape,
)
from gesta.views import Parked

Record = dict[str, Any]


def request_record(state: State, pause: Pause | None = None) -> Record:
    return _record(request_shape(state, pause))


def pause_record(pause: Pause, held: int) -> Record:
    return _record(pause_shape(pause, held))


def key_record(key: ApiKey) -> Record:
    return _record(key_shape(key))


def payload_record(payload: bytes, flow: Flow | None) -> Record | None:
    return payload_shape(payload, flow)


def event_record(told: Told, version: int) -> Record:
    return _record(event_shape(told, version))


def attempt_records(history: Iterable[Told]) -> list[Record]:
    return [_record(one) for one in attempt_shapes(history)]


def entity_record(entity: Entity) -> Record:
    return _record(entity_shape(entity))


def parked_record(parked: Parked) -> Record:
    return _record(parked_shape(parked))


def _record(shape: msgspec.Struct) -> Record:
    fields: Record = msgspec.to_builtins(shape)
    return fields
