"""Every channel keeps the flow contract on SQLite. No channel knows its store: one with personal
data and one without keep the contract on every store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gesta.testing.contracts.flow import FlowContract, FlowHarness
from tests.flows.channels import CHANNELS
from tests.stores.postgresql.places import fresh_url

CASES = [(channel, "sqlite") for channel in CHANNELS] + [
    (channel, store) for channel in ("email", "webhook") for store in ("memory", "postgresql")
]


class TestChannels(FlowContract):
    @pytest.fixture(params=CASES, ids="-".join)
    def case(self, request: pytest.FixtureRequest) -> tuple[str, str]:
        """A channel and a store."""
        made: tuple[str, str] = request.param
        return made

    @pytest.fixture
    def channel(self, case: tuple[str, str]) -> FlowHarness:
        return CHANNELS[case[0]]()

    @pytest.fixture
    async def store_url(self, case: tuple[str, str], tmp_path) -> AsyncIterator[str]:
        match case[1]:
            case "memory":
                yield "memory:contract"
            case "sqlite":
                yield f"sqlite:///{tmp_path / 'gesta.db'}"
            case _:
                yield await fresh_url()
