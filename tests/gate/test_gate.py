"""What .ci/run makes of tests that fail, and the time limit of each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

#: `make test` and `make retest` end with the codes they are given, and leave what failed.
MAKE = """#!/usr/bin/env bash
echo "make $1"
if [ "$1" = test ]; then
    mkdir -p .pytest_cache/v/cache
    [ -z "$FAILED" ] || printf '%s' "$FAILED" > .pytest_cache/v/cache/lastfailed
    exit "$TEST"
fi
exit "$RETEST"
"""
FAILED = '{\n  "tests/a.py::test_b[c d]": true,\n  "tests/a.py::test_e": true\n}'
NAMES = "flaky:\ntests/a.py::test_b[c d]\ntests/a.py::test_e\n"


def gate(folder: Path, **codes: object) -> subprocess.CompletedProcess[str]:
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    make = folder / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE)
    make.chmod(0o755)
    given = {name: str(value) for name, value in codes.items()}
    return subprocess.run(
        [folder / ".ci" / "run"],
        env={"PATH": f"{make.parent}{os.pathsep}{os.environ['PATH']}", "FAILED": "", **given},
        capture_output=True,
        text=True,
    )


def test_green_tests_run_once(tmp_path):
    done = gate(tmp_path, TEST=0)
    assert (done.returncode, done.stdout) == (0, "make test\n")


def test_a_test_that_passes_the_second_time_is_green_and_named_at_the_end(tmp_path):
    done = gate(tmp_path, TEST=2, FAILED=FAILED, RETEST=0)
    assert done.returncode == 0
    assert done.stdout == f"make test\nmake retest\n\n{NAMES}"


def test_a_test_that_fails_twice_is_red(tmp_path):
    done = gate(tmp_path, TEST=2, FAILED=FAILED, RETEST=2)
    assert done.returncode == 2
    assert "flaky" not in done.stdout


def test_a_failure_that_is_not_of_a_test_is_not_repeated(tmp_path):
    # Of an earlier run.
    left = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    left.parent.mkdir(parents=True)
    left.write_text(FAILED)
    done = gate(tmp_path, TEST=2)
    assert (done.returncode, done.stdout) == (2, "make test\n")


@pytest.mark.slow
def test_quick_tests_need_no_server_and_do_not_go_the_whole_way():
    files = ["tests/contracts/test_fences.py", "tests/pipeline/test_people.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not slow", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "[memory]" in done.stdout
    assert "postgresql" not in done.stdout
    assert "tests/pipeline" not in done.stdout


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_shows_where():
    file = ROOT / "tests" / "gate" / "hanging.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--test-seconds=1", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed" in done.stdout
    assert done.stdout.count("took more than 1 seconds") >= 3
    assert 'hanging.py", line 11 in test_sleeps_for_ever' in done.stdout
