"""Whatever is wrong with a log line: no outcome is lost for it, and no job stays held."""

from __future__ import annotations

import pytest

from gesta import Rejected, Unknown
from gesta.runtime.telemetry import Telemetry
from tests.world import FLOW, Deaf, Gate, Note, Provider, engine_of, let_run, pass_time, result


async def test_a_log_target_that_raises_loses_no_outcome(gesta):
    def target(note: Note) -> str:
        raise KeyError(note.text)

    provider = Provider(Rejected("no"))
    async with engine_of(provider, target=target) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await result(request) == Rejected("no")
        assert await engine.admin.quarantined() == []


@pytest.mark.parametrize("name", ["event", "reason", "level", "requestId"])
async def test_a_tag_that_is_called_as_one_of_ours_loses_no_outcome(gesta, name, caplog):
    provider = Provider(Rejected("no"))
    async with engine_of(
        provider, tags=lambda _, __: {name: "the flow's own", "room": "ops"}
    ) as engine:
        request = await engine.submit(Note())
        await let_run(gesta)
        assert await result(request) == Rejected("no")
        assert await engine.admin.quarantined() == []
    assert '"room":"ops"' in caplog.text
    assert "the flow's own" not in caplog.text


async def test_a_log_that_raises_leaves_no_job_held_whose_executor_does_not_end(gesta, monkeypatch):
    def raises(*_: object) -> None:
        raise ValueError("a filter of the application's own")

    monkeypatch.setattr(Telemetry, "executor_does_not_end", raises)
    deaf, other = Deaf(), Gate()
    async with engine_of(Provider(other, deaf), on_unknown="manual", timeout_seconds=10) as engine:
        # Another call keeps the lease alive.
        object.__setattr__(engine.pipeline.flows[FLOW], "timeout_seconds", 1_000.0)
        await engine.submit(Note())
        await let_run(gesta)
        object.__setattr__(engine.pipeline.flows[FLOW], "timeout_seconds", 10.0)
        request = await engine.submit(Note())
        await pass_time(gesta, 30)
        assert await result(request) == Unknown(
            "timeout", "the executor was cancelled and does not end"
        )
        assert engine.pipeline.pool.lease.held == 1
        other.opened.set()
        deaf.opened.set()
        await pass_time(gesta, 1)
