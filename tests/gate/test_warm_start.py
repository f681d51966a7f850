"""A process that is forked from one that has imported the engine is like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

#: What a process is given, and whether it had to import the engine itself.
PROGRAM = """
import json, os, sys
warm = "gesta.engine.engine" in sys.modules
given = [sys.argv[1:], os.getcwd(), os.environ.get("COLOUR"), os.getppid(), sys.stdin.read(), warm]
print(json.dumps(given))
print("said", file=sys.stderr)
sys.exit(7)
"""


def started(folder, **environment):
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", "a b", "c"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "COLOUR": "blue", **environment},
        input="heard",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (7, "said\n")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_fork_gets_its_arguments_folder_environment_and_streams_and_is_our_child(tmp_path):
    given = [["a b", "c"], str(tmp_path), "blue", os.getpid(), "heard"]
    assert started(tmp_path) == [*given, True]
    # An option of the interpreter is obeyed: only a new one can.
    assert started(tmp_path, PYTHONHASHSEED="1") == [*given, False]


@pytest.mark.slow
def test_a_fork_dies_of_a_signal_alone(tmp_path):
    (tmp_path / "program.py").write_text("import time\nprint('on', flush=True)\ntime.sleep(600)\n")
    pair = [
        subprocess.Popen(
            [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for one in pair:
        assert one.stdout is not None
        assert one.stdout.readline() == "on\n"
    pair[0].kill()
    assert pair[0].wait(60) == -signal.SIGKILL
    assert pair[1].poll() is None
    pair[1].terminate()
    assert pair[1].wait(60) == -signal.SIGTERM
    for one in pair:
        one.communicate()


@pytest.mark.slow
def test_nothing_is_left_running_when_the_tests_end():
    one = f"{__file__}::test_a_fork_dies_of_a_signal_alone"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", one],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
