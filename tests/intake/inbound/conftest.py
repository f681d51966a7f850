from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.intake.inbound.stage import Stage, stage
from tests.stores.postgresql.places import fresh_url


@pytest.fixture(params=["sqlite", "postgresql"])
async def slack_to_backlog(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[Stage]:
    """On every store."""
    url = f"sqlite:///{tmp_path / 'gesta.db'}" if request.param == "sqlite" else await fresh_url()
    async with stage(url) as made:
        yield made


@pytest.fixture
async def here(tmp_path) -> AsyncIterator[Stage]:
    """On one file: for what no store has a part in."""
    async with stage(f"sqlite:///{tmp_path / 'gesta.db'}") as made:
        yield made
