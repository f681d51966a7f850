"""schemathesis goes over the whole API, with every check it has: a real server, a real key,
thousands of calls made from the description.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.http_api.searched import PLANTS

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
#: `valid_data_is_accepted` of search_hooks.py knows more than `positive_data_acceptance`.
#: Another tenant's things are what test_tenant_walk.py is about.
LEFT_OUT = "positive_data_acceptance,object_level_authorization"
FEW, MANY = 1, 60
pytestmark = pytest.mark.slow


def search(server_url: str, key: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """One search; its exit code is 0 when nothing was found."""
    hooks = {
        "SCHEMATHESIS_HOOKS": "tests.http_api.search_hooks",
        "SEARCH_KEY_ID": key.split("_")[2],
    }
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{server_url}/openapi.json",
        "-H",
        f"Authorization: Bearer {key}",
        "--checks",
        "all",
        "--exclude-checks",
        LEFT_OUT,
        "--generation-database",
        "none",
        "--no-color",
        "--request-timeout",
        "20",
        "--continue-on-failure",
        *more,
    ]
    environment = {**os.environ, "PYTHONPATH": PATHS, **hooks}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )


@contextmanager
def serving(store_url: str, folder: Path, *plants: str) -> Iterator[tuple[str, str]]:
    """A server in a process of its own: its address and an admin key."""
    command = [sys.executable, "-m", "tests.http_api.searched", store_url, *plants]
    with (folder / "server.log").open("w") as log:
        environment = {**os.environ, "PYTHONPATH": PATHS}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().split()
            assert len(line) == 2, (folder / "server.log").read_text()
            yield line[0], line[1]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_a_search_over_the_whole_api_finds_nothing(store_url, tmp_path, crash_seed, request):
    is_long = request.config.getoption("--seeds") > 3
    # What is the same for every seed is done once and on one store: it is by far the most calls.
    phases = (
        "examples,coverage"
        if crash_seed == 0 and store_url.startswith("sqlite")
        else "examples,fuzzing,stateful"
    )
    count = str(MANY if is_long else FEW)
    with serving(store_url, tmp_path) as server:
        done = search(
            *server,
            tmp_path,
            "--phases",
            phases,
            "--seed",
            str(crash_seed),
            "--max-examples",
            count,
        )
    assert done.returncode == 0, (
        done.stdout[-20_000:] + (tmp_path / "server.log").read_text()[-5_000:]
    )


def test_a_search_finds_what_is_wrong(tmp_path):
    """A crash, an answer of another type, a route that asks for no key, and one that refuses what
    the description allows: each planted on one route, and those are searched.
    """
    with serving(f"sqlite:///{tmp_path / 'gesta.db'}", tmp_path, "--planted") as server:
        chosen = [word for name in PLANTS for word in ("--include-operation-id", name)]
        done = search(
            *server,
            tmp_path,
            *chosen,
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            "20",
            "--seed",
            "1",
        )
    assert done.returncode == 1, done.stdout
    for code in (
        "ST101 Server error",
        "ST108 Response violates schema",
        "ST401",
        "valid_data_is_accepted",
    ):
        assert code in done.stdout
