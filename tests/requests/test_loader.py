"""The state of a request right now, however often it is asked for in one call."""

from __future__ import annotations

from gesta import Engine
from gesta.domain.stream_names import request_stream
from tests.world import FLOW, Note, Provider, note_flow


async def test_two_jobs_of_one_take_that_point_to_one_request_do_not_fold_its_events_twice(
    tmp_path,
):
    """A job that was put once more and the one that follows it were taken together: both led to a
    version that does not exist, and both were dropped.
    """
    async with Engine(
        f"sqlite:///{tmp_path}/gesta.db", flows=[note_flow(Provider())], work=False
    ) as engine:
        request, other = await engine.submit(Note()), await engine.submit(Note())
        # No projector runs, so there is no view of them yet.
        keys = [(FLOW, "default", one) for one in (request.id, other.id, request.id)]
        found, also = await engine.pipeline.loader.load(
            keys, [(request_stream(FLOW, "default", other.id), 1)]
        )
        assert {key: view.state.version for key, view in found.items()} == dict.fromkeys(keys, 1)
        assert also == []
