"""The calls on the page about external work do what it says, with their lines unchanged: gesta
serve, gesta.toml and curl alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gesta.worker.external import RecordFailed, RecordSent, RecordUnknown
from tests.cli.conftest import folder, start
from tests.docs.test_docs import ROOT, blocks

__all__ = ["folder", "start"]

PAGE = ROOT / "docs" / "external-work.md"


@pytest.mark.slow
def test_the_calls_of_the_page_bring_a_request_to_its_end(folder, start):
    (settings,) = blocks(PAGE, "toml")
    (folder / "gesta.toml").write_text(settings)
    server = start("serve", "--port", "0")
    server.wait_for("ready;")
    (api,) = re.findall(r"http://127\.0\.0\.1:\d+", server.heard)[:1]
    assert "executed by external workers: warehouse.pick" in server.heard
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "gesta").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gesta "$@"\n')
    (bin_folder / "gesta").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "API": api,
    }
    script = "set -eu\n" + "echo ----\n".join(blocks(PAGE, "sh"))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    accepted, work, held, reported = (part.strip() for part in done.stdout.split("----\n"))
    request_id = msgspec.json.decode(accepted)["id"]
    (item,) = msgspec.json.decode(work)["items"]
    assert (item["id"], item["attempt"], item["payload"]) == (request_id, 1, {"sku": "A-7"})
    assert held.count(item["leaseUntil"]) == 0, (
        "the lease was extended before the work was seen again"
    )
    first, second = re.findall(r"\{[^{}]*\}", reported)
    assert first == second
    assert msgspec.json.decode(first)["status"] == "completed"
    assert server.end(signal.SIGTERM).code == 0


def test_the_page_names_every_kind_of_report_and_its_fields():
    text = Path(PAGE).read_text(encoding="utf-8")
    for kind in (RecordSent, RecordFailed, RecordUnknown):
        assert f"`{kind.__struct_config__.tag}`" in text
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"`{field.encode_name}[`:]", text), field.encode_name
