"""The pages about event webhooks and delivery receipts: the program runs, the commands work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from tests.docs.test_docs import ROOT, blocks

EVENTS, RECEIPTS = ROOT / "docs" / "event-webhooks.md", ROOT / "docs" / "delivery-receipts.md"


def environment(folder: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }


@pytest.mark.slow
@pytest.mark.parametrize("page", [EVENTS, RECEIPTS], ids=lambda page: page.name)
def test_the_commands_of_the_page_work(page, tmp_path):
    commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    # The first request creates the store.
    made = ['gesta submit notification.webhook \'{"type": "a", "data": {}}\'']
    assert len(commands) >= 2
    for command in made + commands:
        line = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(
            line,
            cwd=tmp_path,
            env=environment(str(tmp_path)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_settings_of_the_pages_are_read(number, tmp_path):
    (tmp_path / "gesta.toml").write_text("\n".join(blocks((EVENTS, RECEIPTS)[number], "toml")))
    line = [sys.executable, "-m", "gesta", "settings", "--json"]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env=environment(str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("notification.slack:ops", "https://gesta.example.com")[number] in done.stdout, (
        done.stderr
    )


@pytest.mark.slow
def test_the_program_of_the_receipts_page_records_a_delivery(tmp_path):
    (text,) = blocks(RECEIPTS, "python")
    (tmp_path / "page.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=environment(str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "delivered\n", done.stderr
