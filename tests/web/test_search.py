"""schemathesis goes over the whole API, with every check it has: a real server, a real key, thousands of calls made from the description."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: A payload may fit its type and still be refused by its flow, a cursor be a text and none of ours: what fits the schema need not be accepted.
#: Another tenant's things are what test_tenant_walk.py is about.
LEFT_OUT = "positive_data_acceptance,object_level_authorization"
FEW = 4
pytestmark = pytest.mark.slow


def search(server_url: str, key: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """One search; its exit code is 0 when nothing was found."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "SCHEMATHESIS_HOOKS": "tests.web.search_hooks"}
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "run", f"{server_url}/openapi.json", "-H", f"Authorization: Bearer {key}", "--checks", "all",
        "--exclude-checks", LEFT_OUT, "--generation-database", "none", "--no-color", "--request-timeout", "20", "--continue-on-failure", *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1_800, check=False)


@pytest.fixture
def server(store_url, tmp_path, request):
    """Its address and an admin key."""
    program = getattr(request, "param", "tests.web.searched")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", program, store_url],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert len(line) == 2, (tmp_path / "server.log").read_text()
        yield line
        process.terminate()
        process.communicate(timeout=30)


def test_a_search_over_the_whole_api_finds_nothing(server, store_url, tmp_path, crash_seed, request):
    is_long = request.config.getoption("--seeds") > 3
    # What is the same for every seed is done once and on one store: it is by far the most calls.
    phases = "examples,coverage" if crash_seed == 0 and store_url.startswith("sqlite") else "examples,fuzzing,stateful"
    done = search(*server, tmp_path, "--phases", phases, "--seed", str(crash_seed), "--max-examples", str(60 if is_long else FEW))
    assert done.returncode == 0, done.stdout[-20_000:] + (tmp_path / "server.log").read_text()[-5_000:]
