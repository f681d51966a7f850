"""Every channel keeps the flow contract, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gesta.testing.contracts.flow import FlowContract, FlowHarness
from tests.flows.channels import CHANNELS
from tests.stores.postgresql.places import fresh_url


class TestChannels(FlowContract):
    @pytest.fixture(params=list(CHANNELS.values()), ids=list(CHANNELS))
    def channel(self, request: pytest.FixtureRequest) -> FlowHarness:
        made: FlowHarness = request.param()
        return made

    @pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
    async def store_url(self, request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[str]:
        match request.param:
            case "memory":
                yield "memory:contract"
            case "sqlite":
                yield f"sqlite:///{tmp_path / 'gesta.db'}"
            case _:
                yield await fresh_url()
