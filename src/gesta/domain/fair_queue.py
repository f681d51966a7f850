"""Start-time fair queueing: fair between tenants, and by priority within a tenant.

A job gets one number, its score, when it becomes ready; the lowest score is served first. A flow
serves turns in order; the present is the turn that it has reached. The jobs of one tenant and
priority form a line and get one turn each, starting at the present. So a tenant with many jobs
waits behind itself, and a tenant with a single job is served next. A line starts where the more
urgent lines of its tenant end, so a job never overtakes a more urgent one of its own tenant. A turn
never changes, so no job waits forever.
"""

from collections.abc import Mapping

#: Flow, tenant, priority.
QueueLine = tuple[str, str, int]

#: Inside a turn the most urgent job goes first. Priorities are 1 to 10.
_PLACES = 16


def score_of(turn: int, priority: int) -> int:
    """The position of a job in the order of its flow; the lowest is served first."""
    return turn * _PLACES + priority


def turn_of(score: int) -> int:
    return score // _PLACES


def give_turns(
    wanted: Mapping[QueueLine, int], presents: Mapping[str, int], ends: Mapping[QueueLine, int]
) -> dict[QueueLine, int]:
    """The first turn for each line of new jobs; the further jobs of a line get the next turns.

    `wanted`: how many jobs each line gets. `presents`: the present of each flow. `ends`: for each
    line of these tenants, the turn after its last one.
    """
    firsts: dict[QueueLine, int] = {}
    now_ends = dict(ends)
    # Most urgent first, so that less urgent jobs of the same batch start behind them.
    for line in sorted(wanted):
        flow, tenant, priority = line
        first = max(presents.get(flow, 0), now_ends.get(line, 0))
        for more_urgent in range(1, priority):
            # It may share the turn of the last more urgent job: there the priority decides.
            first = max(first, now_ends.get((flow, tenant, more_urgent), 0) - 1)
        firsts[line], now_ends[line] = first, first + wanted[line]
    return firsts
