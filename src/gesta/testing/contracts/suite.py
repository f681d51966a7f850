"""The frame of a contract: which capabilities it asks for, and how a test comes to its store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from gesta.testing.contracts.harness import Capability, Harness


class Contract:
    """A set of promises, each an async test of one harness.

    A subclass called `Test…` with a fixture `harness_type` runs them.

    A test uses no other fixture, so that it can also be called with a harness by hand.
    """

    needs: ClassVar[frozenset[Capability]]

    @pytest.fixture
    async def harness(self, harness_type: type[Harness], tmp_path: Path) -> AsyncIterator[Harness]:
        harness = harness_type(tmp_path)
        await harness.open()
        yield harness
        await harness.close()
