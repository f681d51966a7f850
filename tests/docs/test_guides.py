"""The commands of the guides work."""

import os
import shlex
import subprocess
import sys

from tests.docs.test_docs import ROOT, blocks


def test_the_commands_of_the_guides_work(tmp_path):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
    }
    commands = ['gesta submit notification.webhook \'{"type": "a", "data": {}}\'']
    for name in ("troubleshooting", "testing"):
        for block in blocks(ROOT / "docs" / f"{name}.md", "sh"):
            commands += block.splitlines()
    assert len(commands) == 5
    for command in commands:
        line = shlex.split(command.removeprefix("python -m "), comments=True)
        done = subprocess.run(
            [sys.executable, "-m", *line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
