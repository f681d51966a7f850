"""The turns of the SQLite queue: where each flow has come to, and where each line of jobs ends.

The rules are in domain/turns.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from gesta.domain.fair_queue import QueueLine, give_turns, turn_of
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: Later than any turn.
_NEVER = 2**62


def give(db: apsw.Connection, wanted: Mapping[QueueLine, int]) -> dict[QueueLine, int]:
    """The first turn of so many new jobs for each line, on record.

    A few statements for any number of jobs.
    """
    if not wanted:
        return {}
    presents: dict[Any, Any] = dict(
        ask_many(db, "flow_turns", 1, list({flow for flow, _, _ in wanted}))  # type: ignore[arg-type]
    )
    tenants = {(flow, tenant) for flow, tenant, _ in wanted}
    rows: list[Any] = ask_many(db, "last_turns", 2, [name for pair in tenants for name in pair])
    firsts = give_turns(
        wanted, presents, {(flow, tenant, priority): end for flow, tenant, priority, end in rows}
    )
    run_many(
        db,
        "save_last_turns",
        4,
        [value for line, first in firsts.items() for value in (*line, first + wanted[line])],
    )
    return firsts


def serve(db: apsw.Connection, flow: str, score: int, *, is_drained: bool) -> None:
    """Jobs up to this score are taken; nobody is left if `is_drained`, and then every line starts
    anew behind them.
    """
    turn = turn_of(score) + is_drained
    db.execute(sql("move_flow_turn"), (flow, turn))
    db.execute(sql("forget_last_turns"), (flow, _NEVER if is_drained else turn))
