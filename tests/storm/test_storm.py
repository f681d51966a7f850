"""PostgreSQL under everything that a network, a machine and an operator do to it: nothing is lost,
and what is doubled is named.
"""

from __future__ import annotations

from collections import Counter

from gesta import Engine
from gesta.domain.events import OutcomeUnknown
from gesta.domain.state import State
from gesta.testing.postgres_server import PostgresServer
from tests.crash.stage import Stage, kind_of, number_of, stage
from tests.storm.proxy import Proxy
from tests.storm.storm import Storm

ACTIONS = 10


async def test_no_storm_loses_a_request_and_none_doubles_where_keys_protect(
    tmp_path, crash_seed, capsys
):
    async with (
        PostgresServer() as server,
        Proxy(server.port) as proxy,
        stage(
            tmp_path, crash_seed, layout="server", url=server.url, lost_ms=2_000, call_seconds=0.02
        ) as on,
    ):
        wanted = await Storm(on, server, proxy, crash_seed).rest(ACTIONS)
        residual = await check_at_rest(on, wanted)
    with capsys.disabled():
        print(
            f" [storm {crash_seed}: {residual} effects more than requests, each after a lease lost"
            " during a call]",
            end="",
        )


async def check_at_rest(on: Stage, wanted: int) -> int:
    """Check after one more process alone came to rest: a worker that was cut off may report its
    outcome when the others are at rest already, and dies before it projects it.
    """
    with on.process(greedy=True):
        async with on.look() as engine:
            states = await on.at_rest(engine, at_least=wanted)
    async with on.look() as engine:
        return await check(on, engine, states)


async def check(on: Stage, engine: Engine, states: dict[str, State]) -> int:
    """The promises for every request; how many effects there were beyond one, where the receiver
    cannot tell.
    """
    acknowledged, effects = on.acknowledged(), on.effects()
    # One request for each key, however often and by whichever process it was submitted; every
    # acknowledged id is that one.
    assert len({state.key for state in states.values()}) == len(states)
    assert [
        number for number, ids in acknowledged.items() if len(ids) != 1 or not ids <= set(states)
    ] == []
    residual = 0
    for state in states.values():
        number, kind = number_of(state), kind_of(state)
        history = [event for _, event, _ in await engine.history(state.id, flow=state.flow)]
        unknowns = sum(isinstance(event, OutcomeUnknown) for event in history)
        description = (
            kind,
            state.status,
            state.reason,
            f"effects {effects[number]}",
            f"unknowns {unknowns}",
            history,
        )
        # Every accepted request has one terminal outcome or is visibly unknown.
        assert state.status == "completed" or (
            kind == "parcel" and state.status == "unknown" and state.reason
        ), description
        least = 1 if state.status == "completed" else 0
        assert least <= effects[number] <= (1 if kind == "order" else 1 + unknowns), description
        residual += max(0, effects[number] - 1)
    # The views are what the events say, and nothing is sent again to make them.
    await engine.admin.rebuild()
    rebuilt = await on.states(engine)
    assert [
        (rebuilt.get(key), view) for key, view in states.items() if rebuilt.get(key) != view
    ] == []
    assert rebuilt.keys() == states.keys()
    assert on.effects() == Counter(effects)
    return residual
