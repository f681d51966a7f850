from __future__ import annotations

import pytest

from tests.architecture.source import parse


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """The trees of all sources: 270 MB, and every search for cycles would walk through them."""
    if nextitem is None or not nextitem.nodeid.startswith("tests/architecture/"):
        parse.cache_clear()
