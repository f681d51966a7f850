from __future__ import annotations

from collections.abc import Iterator

import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.testing.moto_server import CREDENTIALS, MotoServer
from tests.cli.conftest import cli, folder  # noqa: F401 -- fixtures


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """A fake of SQS in a process of its own, with the real time."""
    server = MotoServer()
    server.start()
    yield server
    server.end()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix() -> str:
    return f"t{SystemRuntime().random_bytes(6).hex()}"
