"""Views and parked things as the rows of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from gesta.domain.state import State
from gesta.ports.read_model import Quarantined, View
from gesta.stores.sqlite.statements import run_many

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(State).decode


def quarantine_step(db: apsw.Connection, quarantined: Sequence[Quarantined]) -> None:
    flat: list[Any] = []
    for one in quarantined:
        flat += (one.stream, one.version, one.what, one.tenant, one.error, one.at_ms)
    run_many(db, "quarantine", 6, flat)


def view_rows(views: Sequence[View]) -> list[Any]:
    flat: list[Any] = []
    for view in views:
        state = view.state
        flat += (
            state.tenant,
            state.flow,
            state.id,
            state.status,
            state.version,
            state.updated_at,
            state.sweep_at,
            _encode(state),
            view.payload,
        )
    return flat


def view_of(row: tuple[Any, ...]) -> View:
    return View(_decode(row[0]), row[1])


def state_of(row: tuple[Any, ...]) -> State:
    return _decode(row[0])
