"""The turns of the PostgreSQL queue. The rules are in domain/turns.py.

Turns are read before and noted with the jobs, not under a lock: two who give at the same instant
may give the same one, and then
those two jobs are of equal right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gesta.domain.fair_queue import QueueLine, give_turns, score_of
from gesta.stores.postgresql.connections import Connection, Row
from gesta.stores.postgresql.statements import Statements


class Given(NamedTuple):
    """The score of each job, and what has to be noted: lines with their ends, flows with their
    presents.
    """

    scores: dict[str, int]
    noted: tuple[list[str], list[str], list[int], list[int], list[str], list[int]]


NONE = Given({}, ([], [], [], [], [], []))


def pairs_of(jobs: Iterable[tuple[str, QueueLine]]) -> tuple[list[str], list[str]]:
    """The flows and tenants whose turns have to be read."""
    pairs = list({(flow, tenant) for _, (flow, tenant, _) in jobs})
    return [flow for flow, _ in pairs], [tenant for _, tenant in pairs]


def give(jobs: Sequence[tuple[str, QueueLine]], rows: Sequence[Row]) -> Given:
    """Scores for (job id, line), in this order."""
    presents = {flow: turn for flow, tenant, _, turn in rows if tenant is None}
    ends: dict[QueueLine, int] = {
        (flow, tenant, priority): turn
        for flow, tenant, priority, turn in rows
        if tenant is not None
    }
    wanted = Counter(line for _, line in jobs)
    turns = give_turns(wanted, presents, ends)
    lines = [(*line, first + wanted[line]) for line, first in turns.items()]
    scores: dict[str, int] = {}
    for job_id, line in jobs:
        scores[job_id] = score_of(turns[line], line[2])
        turns[line] += 1
    return Given(
        scores,
        (
            [line[0] for line in lines],
            [line[1] for line in lines],
            [line[2] for line in lines],
            [line[3] for line in lines],
            list(presents),
            list(presents.values()),
        ),
    )


async def give_within(
    connection: Connection, sql: Statements, jobs: Sequence[tuple[str, QueueLine]]
) -> dict[str, int]:
    """Read, give and note, inside a transaction; the scores."""
    given = give(jobs, await connection.fetch(sql("next_turns"), *pairs_of(jobs)))
    await connection.fetch(sql("save_turns"), *given.noted)
    return given.scores
