"""kill -9 at the points of the matrix, on a server: the same ends as on a file, whichever way
events are projected.
"""

from __future__ import annotations

import random

import pytest

from tests.crash.points import POINTS
from tests.crash.stage import kind_of, number_of, stage
from tests.crash.test_points import end_of
from tests.stores.postgresql.places import fresh_url

#: A frozen process may stand in the middle of a transaction of several statements, whose locks the
#: server keeps for it: see tests/storm.
KILLED = [point for point in POINTS if point.layout in (None, "together") and not point.frozen]
#: A process stands at the end of a server's log a second or two after its start; by then some have
#: still to be submitted.
MANY = tuple(range(600))


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLED, ids=lambda point: f"{point.k}: {point.name}")
async def test_a_crash_at_any_point_breaks_no_promise_on_a_server(tmp_path, crash_seed, point):
    dice = random.Random(f"{crash_seed} {point.name}")
    inline = crash_seed // 2 % 2 == 0 if point.inline is None else point.inline
    eager_dispatch = (
        crash_seed // 4 % 2 == 0 if point.eager_dispatch is None else point.eager_dispatch
    )
    url = await fresh_url()
    plan = {"journal": point.journal, "inline": inline, "eager_dispatch": eager_dispatch}
    async with stage(tmp_path, crash_seed, layout="server", url=url, **plan) as on:
        victims, states = await end_of(on, point, dice, MANY)
        effects = on.effects()
    for victim in victims:
        state = states[victim]
        status, count, calls = point.ends[kind_of(state)]
        assert (state.status, effects[number_of(state)]) == (status, count), state
        assert len(on.calls[number_of(state)]) == calls, state
