"""schemathesis goes over the description of the FastAPI example, served by a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.testing.server_process import free_port

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_keeps_what_its_description_says(tmp_path):
    port = free_port(SystemRuntime())
    env = {
        **os.environ,
        "GESTA_URL": f"sqlite:///{tmp_path}/gesta.db",
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    command = (
        "tests.jobs.short_program",
        "uvicorn",
        "examples.fastapi_reports:app",
        "--port",
        str(port),
    )
    server = subprocess.Popen([sys.executable, "-m", *command], cwd=tmp_path, env=env)
    base = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"{base}/openapi.json")
                break
            except httpx.ConnectError:
                assert time.monotonic() < until
                time.sleep(0.05)
        found = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"),
                "run",
                f"{base}/openapi.json",
                "--max-examples",
                "2",
                "--seed",
                "1",
                "--phases",
                "coverage,fuzzing",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
    finally:
        server.kill()
        server.wait()
