"""Whose turn it is: fair between tenants, urgent first inside a tenant, told by one number that a
job gets when it becomes ready.

Start-time fair queueing. A flow serves turns in order; its present is the turn that it has come to.
The jobs of one tenant and priority
stand in a line and have one turn each, the first of them the present: so a flood queues behind
itself, and whoever comes with a single
job is served next. A line begins where the more urgent lines of its tenant end, so that a less
urgent job passes none of its own tenant's;
an urgent one does not wait for its tenant's flood, because its line is another. A turn never
changes, so nobody waits for ever.
"""

from collections.abc import Mapping

#: Flow, tenant, priority.
QueueLine = tuple[str, str, int]

#: Inside a turn the most urgent job goes first. Priorities are 1 to 10.
_PLACES = 16


def score_of(turn: int, priority: int) -> int:
    """The place of a job in the order of its flow; lower goes first."""
    return turn * _PLACES + priority


def turn_of(score: int) -> int:
    return score // _PLACES


def give_turns(
    wanted: Mapping[QueueLine, int], presents: Mapping[str, int], ends: Mapping[QueueLine, int]
) -> dict[QueueLine, int]:
    """The first turn of so many new jobs for each line; the others follow one by one.

    `presents`: the present of each flow. `ends`: the turn after the last one given, for every line
    of these tenants that has one.
    """
    firsts: dict[QueueLine, int] = {}
    now_ends = dict(ends)
    # Most urgent first, so that the less urgent of the same batch begin behind them.
    for line in sorted(wanted):
        flow, tenant, priority = line
        first = max(presents.get(flow, 0), now_ends.get(line, 0))
        for more_urgent in range(1, priority):
            # Not after its last job's turn but in it: there the priority decides.
            first = max(first, now_ends.get((flow, tenant, more_urgent), 0) - 1)
        firsts[line], now_ends[line] = first, first + wanted[line]
    return firsts
