from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http_api.served import Served, served
from tests.stores.postgresql.places import fresh_url


@pytest.fixture(params=["sqlite", "postgresql"])
async def store_url(request: pytest.FixtureRequest, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'gesta.db'}"
    return await fresh_url()


@pytest.fixture
async def api(store_url) -> AsyncIterator[Served]:
    """On every store."""
    async with served(store_url) as one:
        yield one


@pytest.fixture
async def api_here(tmp_path) -> AsyncIterator[Served]:
    """On one file: for what no store has a part in."""
    async with served(f"sqlite:///{tmp_path / 'gesta.db'}") as one:
        yield one
