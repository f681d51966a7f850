"""The commands on the page about keys do what it says, against a real `gesta serve`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import folder, start
from tests.docs.test_docs import ROOT, blocks

__all__ = ["folder", "start"]

PAGE = ROOT / "docs" / "access.md"


@pytest.mark.slow
def test_the_commands_of_the_page_work(folder: Path, start):
    serving = start("serve")
    serving.wait_for("ready")
    address = re.search(r"api: (http://127\.0\.0\.1:\d+)/v1", serving.heard)
    assert address is not None
    (folder / "gesta").write_text(f'#!/bin/sh\nexec {sys.executable} -m gesta "$@"\n')
    (folder / "gesta").chmod(0o755)
    lines = "\n".join(blocks(PAGE, "sh")).replace("http://127.0.0.1:8420", address[1])
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-e"],
        input=lines,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"what":"key_created"' in done.stdout
    assert '"status":"sent"' in done.stdout
    assert '"test":true' in done.stdout
    assert "gesta_live_" not in done.stdout + done.stderr
    serving.end(signal.SIGTERM)
