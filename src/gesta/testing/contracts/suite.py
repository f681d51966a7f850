"""The base class of contracts: the capabilities that it needs, and the fixture of its tests."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from gesta.testing.contracts.harness import Capability, Harness


class Contract:
    """A set of promises, each an async test of one harness.

    A subclass named `Test…` with a fixture `harness_type` runs them. A test uses no other fixture,
    so that code can also call it with a harness.
    """

    needs: ClassVar[frozenset[Capability]]

    @pytest.fixture
    async def harness(self, harness_type: type[Harness], tmp_path: Path) -> AsyncIterator[Harness]:
        harness = harness_type(tmp_path)
        await harness.open()
        yield harness
        await harness.close()
