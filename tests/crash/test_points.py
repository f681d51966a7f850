"""kill -9 and freezing at every point of the matrix: what was met there ends as the matrix says,
and everything else as promised.

A point that is not reached fails the test: `Stage.victims` waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import signal

import pytest

from tests.crash import test_whole_processes
from tests.crash.points import ELSEWHERE, MATRIX, POINTS
from tests.crash.stage import check_promises, check_waits, kind_of, number_of, resume, stage

#: More than there can be batches before the point is reached; and so many that a frozen process has
#: something left to do.
MANY, SOME = tuple(range(90)), tuple(range(18))


def test_every_line_of_the_matrix_has_a_point_or_a_test_of_its_own():
    assert {point.k for point in POINTS} | ELSEWHERE.keys() == MATRIX
    for k, name in ELSEWHERE.items():
        # That it is there, and still says beside an assertion which line it shows.
        assert f"# {k}" in inspect.getsource(getattr(test_whole_processes, name)), (k, name)
    assert len({point.name for point in POINTS}) == len(POINTS)


async def end_of(on, point, dice, many=MANY):
    """Play it: to the point, then a new process works everything off, then the frozen one goes on.

    Victims and all states.
    """
    # On a busy machine, of a few requests none need find a worker with free slots that stands at
    # the end of the log.
    numbers = SOME if point.frozen and not point.eager_dispatch else many
    with on.process(
        point=point.name, nth=dice.randint(1, 3), numbers=numbers, burst=dice.choice((0, 6, 12))
    ) as child:
        victims = await on.victims(child)
        if not point.frozen:
            await asyncio.to_thread(child.join, 10)
            assert child.exitcode == -signal.SIGKILL
        async with on.look() as engine:
            with on.process():
                states = await on.at_rest(engine, at_least=len(victims))
                if point.frozen:
                    resume(child)
                    await on.let_go()
                    states = await on.at_rest(engine, at_least=len(numbers))
            if point.throttled:
                for victim in victims:
                    await check_waits(on, engine, states[victim])  # K-17
            # What else was under way when it froze may have been on its way to the receiver, which
            # no process can cancel: see G3.
            await check_promises(on, engine, states, duplicates=1 if point.frozen else 0)
    return victims, states


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.k}: {point.name}")
async def test_a_process_that_stops_there_breaks_no_promise(tmp_path, crash_seed, point):
    dice = random.Random(f"{crash_seed} {point.name}")
    layout = point.layout or ("together", "separate")[(crash_seed + POINTS.index(point)) % 2]
    inline = crash_seed // 2 % 2 == 0 if point.inline is None else point.inline
    eager_dispatch = (
        crash_seed // 4 % 2 == 0 if point.eager_dispatch is None else point.eager_dispatch
    )
    async with stage(
        tmp_path,
        crash_seed,
        layout=layout,
        journal=point.journal,
        inline=inline,
        eager_dispatch=eager_dispatch,
    ) as on:
        if point.throttled:
            on.throttle()
        victims, states = await end_of(on, point, dice)
        effects = on.effects()
    for victim in victims:
        state = states[victim]
        status, count, calls = point.ends[kind_of(state)]
        # K-1, K-2, K-3
        # K-4, K-5, K-6
        assert (state.status, effects[number_of(state)]) == (status, count), (layout, state)
        # K-7, K-8, K-9
        # K-12, K-17
        assert len(on.calls[number_of(state)]) == calls, (layout, state)
