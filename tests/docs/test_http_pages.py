"""The curl lines and programs of the pages about HTTP do what the texts say, with their lines
unchanged, against a real server.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys

import pytest

from tests.docs.test_docs import ROOT, SECRET, blocks, program

HTTP, CLIENT = ROOT / "docs" / "http-api.md", ROOT / "docs" / "client.md"


@pytest.fixture
def server(tmp_path):
    """`gesta serve` in an empty folder: where it answers."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "gesta", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    heard = ""
    while not (found := re.search(r"api: (http://\S+)/v1", heard)):
        line = process.stderr.readline()
        assert line, heard
        heard += line
    yield found[1], environment
    process.terminate()
    process.communicate(timeout=60)


def run(script, folder, environment):
    lines = [f'gesta() {{ "{sys.executable}" -m gesta "$@"; }}', "set -e -o pipefail", script]
    return subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def codes_of_the_source():
    """(status, code) of every error that the API answers; None: the code is a variable."""
    for path in (ROOT / "src" / "gesta").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            given = [one.value if isinstance(one, ast.Constant) else None for one in node.args]
            if name == "Problem" and path.parent.name == "http_api":
                yield given[0], given[1]
            elif name == "CommandRefused":
                yield 409, given[0]


def test_the_table_of_errors_lists_every_code_with_its_status():
    rows = re.findall(r"^\| ([\d, ]+) \| (.*?) \|", HTTP.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {
        (int(status), code)
        for statuses, codes in rows
        for status in statuses.split(", ")
        for code in re.findall(r"`(\w+)`", codes)
    }
    # Of errors whose code is a variable in the source.
    others = {
        (409, "beyond_authorization"),
        (409, "beyond_capture"),
        (503, "ledger_unavailable"),
        (503, "overloaded"),
        (503, "renderer_unavailable"),
        (503, "store_unavailable"),
        (507, "store_full"),
    }
    found = {(status, code) for status, code in codes_of_the_source() if code is not None}
    assert (410, "subject_erased") in found
    assert sorted((found | others) - listed) == []
    # And none that no call answers.
    assert {code for _, code in listed} - {code for _, code in found | others} == set()


@pytest.mark.slow
def test_the_lines_of_the_page_work_from_the_first_to_the_last(server, tmp_path):
    address, environment = server
    page = blocks(HTTP, "sh")
    script = "\n".join(f"{block}\necho '### {number}'" for number, block in enumerate(page))
    done = run(script.replace("http://127.0.0.1:8420", address), tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    reported = re.split(r"### \d+\n", done.stdout)
    assert '"verdict":"created"' in reported[1]
    assert '"status":"sent"' in reported[1]
    # The same key led to the same request, whose timeline and attempts are shown.
    assert (
        "MessageCreated" in reported[2]
        or "RequestCreated" in reported[2]
        or "Created.v1" in reported[2]
    )
    assert '"outcome":"done"' in reported[2]
    assert '"verdict":"created"' in reported[3]
    assert '"verdict":"invalid"' in reported[3]
    assert '"payload.texts"' in reported[4]
    assert "retry: 2000" in reported[5]
    assert "KeyRevoked" in reported[6] or "revoked" in reported[6]
    assert '"code":"already_ended"' in reported[7]
    assert reported[8].count('"finished":true') == 2
    assert "sent" in reported[9]


@pytest.mark.slow
async def test_the_programs_of_the_client_page_work(server, tmp_path):
    address, environment = server
    made = await asyncio.to_thread(run, "gesta key create --test", tmp_path, environment)
    key = made.stdout.strip()
    status = await program(CLIENT, "async def tell(")["tell"](address, key, 7)
    assert status == "sent"
    found = await asyncio.to_thread(program(CLIENT, "def sent(")["sent"], address, key)
    assert len(found) == 1


@pytest.mark.slow
def test_the_bulk_program_of_the_client_page_redrives_dead_letters(server, tmp_path, capsys):
    address, environment = server
    script = f"""
        gesta config put webhook.endpoint hooks url=http://127.0.0.1:9/ secret={SECRET}
        message='{{"type": "a", "data": {{}}, "endpoint": "hooks"}}'
        gesta submit notification.webhook "$message" --wait 20s || true
        gesta key create --scope operate
    """
    made = run(script, tmp_path, environment)
    key = made.stdout.split()[-1]
    redriven = program(CLIENT, "def redriven(")["redriven"]
    assert redriven(address, key, dry_run=True) == 1
    assert redriven(address, key, dry_run=False) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_five_commands_of_the_readme_lead_to_a_sent_message_and_its_timeline(server, tmp_path):
    address, environment = server
    (commands,) = [
        block.splitlines() for block in blocks(ROOT / "README.md", "sh") if "curl" in block
    ]
    assert len(commands) == 5
    assert commands[0].startswith("gesta serve &")
    # The server runs already, on a free port; and the reader puts the id of the answer in its
    # place.
    script = "\n".join(commands[1:4]).replace("127.0.0.1:8420", address.removeprefix("http://"))
    done = run(script, tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"verdict":"created"' in done.stdout
    assert '"status":"sent"' in done.stdout
    found = re.search(r'"id":"([0-9a-f-]{36})"', done.stdout)
    assert found is not None
    last = (
        "\n".join([commands[1], commands[4]])
        .replace("127.0.0.1:8420", address.removeprefix("http://"))
        .replace("/ID/", f"/{found[1]}/")
    )
    reported = run(last, tmp_path, environment)
    assert re.findall(r'"type":"notification\.slack\.(\w+)\.v1"', reported.stdout) == [
        "MessageRequestCreated",
        "MessageSent",
    ]
