"""The command line in this process, in an empty folder; and in processes of its own where that is
the point.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gesta.cli.main import main
from tests.cli.running import Answer, Cli, Running, work
from tests.cli.serving import SERVED, ServerBeside
from tests.cli.shop import Note

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in [
        name for name in os.environ if name.startswith("GESTA_") and name != "GESTA_API_PORT"
    ]:
        monkeypatch.delenv(name)
    # What a command changes in its process, to be as it was afterwards.
    monkeypatch.setattr(sys, "path", [*sys.path])
    logger = logging.getLogger("gesta")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers])
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    level = logger.level
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    yield tmp_path
    logger.setLevel(level)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module with ON_THE_STORE_ONLY run in both shapes: on the store, and by a server;
    but for those that it names.
    """
    store_only = getattr(metafunc.module, "ON_THE_STORE_ONLY", None)
    if store_only is not None and "cli" in metafunc.fixturenames:
        shapes = ["store"] if metafunc.function.__name__ in store_only else ["store", "server"]
        metafunc.parametrize("cli", shapes, indirect=True)


@pytest.fixture
def cli(
    request: pytest.FixtureRequest,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Cli]:
    """Run a command in this process."""
    with ExitStack() as stack:
        server = (
            stack.enter_context(ServerBeside())
            if getattr(request, "param", "store") == "server"
            else None
        )

        def run(*arguments: str, stdin: str = "") -> Answer:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            asked = (
                server
                if arguments and arguments[0] in SERVED and arguments[:2] != ("config", "apply")
                else None
            )
            for name, value in {
                "GESTA_SERVER": asked and asked.address,
                "GESTA_API_KEY": asked and asked.key,
            }.items():
                monkeypatch.setenv(name, value) if value else monkeypatch.delenv(
                    name, raising=False
                )
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(list(arguments))
            out, err = capsys.readouterr()
            return Answer(int(ended.value.code or 0), out, err)

        yield run


@pytest.fixture
def shop(folder: Path) -> Callable[..., str]:
    """Submit a note that comes to something, let that happen, and give its id."""

    def submit(comes_to: str, key: str | None = None) -> str:
        return work(Note(comes_to, email="ada@example.com"), key=key)[0]

    return submit


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    """Start commands in processes of their own; none outlives the test."""
    started: list[Running] = []

    def begin(*arguments: str) -> Running:
        started.append(Running(arguments))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()
