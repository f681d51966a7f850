"""A bench that gets a signal ends in order: its files and its processes go, and the exit code
names the signal.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.child import ROOT
from tests.demo.test_demo import is_alive, wait_until

pytestmark = pytest.mark.slow


def children_of(pid):
    """By the kernel's own list."""
    listed = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in listed for child in text.split()]


@pytest.mark.parametrize(("number", "url"), [(signal.SIGTERM, None), (signal.SIGINT, "postgresql")])
def test_a_signal_ends_a_bench_in_order(tmp_path, number, url):
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--requests",
        "200000",
        "--folder",
        str(tmp_path),
    ]
    process = subprocess.Popen(
        [*command, *(["--url", url] if url else [])], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        # The bare loop runs, on a server of the bench's own where one was asked for.
        programs = 2 if url else 1
        assert wait_until(
            lambda: (
                process.poll() is not None
                or (len(children_of(process.pid)) >= programs and has_begun(tmp_path))
            )
        )
        assert process.poll() is None, process.communicate()
        children = children_of(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert errors.strip() == "interrupted; nothing is left behind"
    assert not any(is_alive(child) for child in children)
    assert list(tmp_path.iterdir()) == []


def has_begun(folder):
    """Whether the bare loop has a file, or a server has one for it."""
    return any(folder.glob("gesta-bench-*/*/raw.db")) or any(
        folder.glob("gesta-bench-*/*/data/postmaster.pid")
    )
