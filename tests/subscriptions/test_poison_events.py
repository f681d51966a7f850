"""Unreadable events do not stop a subscription: they are quarantined, and the handler gets the
rest.
"""

from __future__ import annotations

import pytest

from gesta import Engine, Retry
from tests.subscriptions.test_handlers import Listener, checkpoint, listening
from tests.world import FLOW, URL, Note, Provider, append_raw, let_run, note_flow, pass_time


@pytest.mark.parametrize(("data", "meta"), [(b"{", None), (b'{"attempts":1}', b"{")])
async def test_a_poison_event_is_quarantined_and_skipped(gesta, data, meta):
    provider, listener = Provider(Retry("busy", after_seconds=100)), Listener()
    async with listening(provider, listener) as engine:
        poisoned = await engine.submit(Note())
        await let_run(gesta)
        await append_raw(engine, poisoned.id, 2, "Completed.v1", data, meta)
        await engine.submit(Note())
        await gesta.settle()
        # S1-17: quarantined, logged, and the rest goes on.
        quarantined = [one for one in await engine.admin.quarantined() if one.what == "event"]
        assert [(one.stream, one.version) for one in quarantined] == [
            (f"{FLOW}.request-default-{poisoned.id}", 3)
        ]
        assert await checkpoint(engine) == await engine.pipeline.environment.stores.events.end()
    assert listener.words == ["created", "attempt_failed", "created", "completed"]


def counted(engine: Engine) -> float | None:
    return engine.pipeline.telemetry.registry.get_sample_value(
        "gesta_quarantined_total", {"what": "event"}
    )


async def test_the_first_consumer_to_read_a_poison_event_quarantines_it(gesta, ports):
    listener = Listener()
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        request = await engine.submit(Note())
        await append_raw(engine, request.id, 1, "Completed.v1", b"{")
    async with listening(Provider(), listener, since="beginning") as engine:
        # The projector does not find out where it stands.
        ports.read_model.fail("checkpoints", times=100)
        await pass_time(gesta, 3)
        assert [(one.what, one.version) for one in await engine.admin.quarantined()] == [
            ("event", 2)
        ]  # S1-17
        # It is the projector's to count.
        assert counted(engine) is None
        ports.read_model.heal()
        await pass_time(gesta, 3)
        assert counted(engine) == 1
    assert listener.words == ["created"]


async def test_events_after_a_poison_event_in_its_stream_are_quarantined_and_others_delivered(
    gesta,
):
    listener = Listener()
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as engine:
        poisoned, healthy = await engine.submit(Note()), await engine.submit(Note())
        await append_raw(engine, poisoned.id, 1, "AttemptFailed.v1", b"{")
        await append_raw(engine, poisoned.id, 2, "Completed.v1", b'{"attempts":1}')
    async with listening(Provider(), listener, "completed", since="beginning") as engine:
        await gesta.settle()
        quarantined = {
            (one.stream, one.version)
            for one in await engine.admin.quarantined()
            if one.what == "event"
        }
        assert {version for stream, version in quarantined if poisoned.id in stream} == {2, 3}
    assert [event.request_id for event in listener.events] == [healthy.id]
