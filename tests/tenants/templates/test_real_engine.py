"""Templates in a real engine: on disk, on the system's clock, in a child process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gesta import Engine
from tests.tenants.templates.corpus import HOSTILE
from tests.tenants.templates.test_child_renderer import children
from tests.tenants.templates.test_templates import Letter, Post, put


@pytest.mark.slow
async def test_a_hostile_template_of_one_tenant_costs_another_nothing(tmp_path: Path) -> None:
    post, before = Post(), children()
    async with Engine(f"sqlite:///{tmp_path / 'gesta.db'}", flows=[post.flow]) as engine:
        assert children() == before
        source, data = HOSTILE["joined"]
        await put(engine, tenant="a", text=source)
        await put(engine, tenant="b", text="Hello {{ name }}")
        hostile = [await engine.submit(Letter(data=data), tenant="a") for _ in range(3)]
        good = [
            await engine.submit(Letter(data={"name": str(number)}), tenant="b")
            for number in range(20)
        ]
        for request in (*hostile, *good):
            await request.outcome(60)
        assert {(await one.view()).state.reason for one in hostile} == {"template_render_failed"}
        views = [(await one.view()).state for one in good]
        assert {(state.status, state.attempts) for state in views} == {("completed", 1)}
        assert sorted(parts["text"] for parts in post.pile) == sorted(
            f"Hello {number}" for number in range(20)
        )
        # It is there after all that, and goes with the engine.
        request = await engine.submit(Letter(data={"name": "last"}), tenant="b")
        await request.outcome(60)
        assert len(children()) > len(before)
    assert children() == before
