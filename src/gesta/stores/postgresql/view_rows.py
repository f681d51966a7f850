"""Views and parked things as the columns of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gesta.domain.state import State
from gesta.ports.read_model import Quarantined, View
from gesta.stores.postgresql.connections import Row

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(State).decode


def view_values(views: Sequence[View]) -> list[tuple[Any, ...]]:
    """Views as `view_row`s."""
    rows = []
    for view in views:
        state = view.state
        rows.append(
            (
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
        )
    return rows


def quarantined_columns(quarantined: Sequence[Quarantined]) -> list[list[Any]]:
    return [
        [one.stream for one in quarantined],
        [one.version for one in quarantined],
        [one.what for one in quarantined],
        [one.tenant for one in quarantined],
        [text_of(one.error) for one in quarantined],
        [one.at_ms for one in quarantined],
    ]


def text_of(told: str) -> str:
    """What an error says, as text that PostgreSQL takes."""
    return told.replace("\x00", "").encode(errors="replace").decode()


def view_of(row: Row) -> View:
    return View(_decode(row[0]), row[1])


def state_of(row: Row) -> State:
    return _decode(row[0])
