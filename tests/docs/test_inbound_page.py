"""The programs and commands on the page about inbound events do what the text says."""

from __future__ import annotations

import json
import shlex

import pytest

from gesta.domain.event_message import decode_message
from tests.docs.test_docs import ROOT, blocks, program, run

PAGE = ROOT / "docs" / "inbound.md"


async def test_the_program_of_the_page_creates_an_issue(gesta):
    names = program(PAGE, "async def report(")
    engine = names["engine"]
    async with engine:
        put = engine.admin.put_config
        await put("backlog.space", "default", {"host": "example.backlog.com", "api_key": "k"})
        await put("backlog.project", "default", {"project_id": 1, "issue_type_id": 2})
        await names["report"]("Replace the printer")
        await names["report"]("Replace the printer")
        await gesta.settle()
    assert [one.text for one in gesta.sandbox.backlog.effects] == ["Replace the printer"]


def test_the_message_of_the_page_can_be_read():
    (block,) = blocks(PAGE, "json")
    message = decode_message(json.dumps(json.loads(block)).encode())
    assert message.message_id == "slack-T012AB3CD-Ev012AB3CD"


@pytest.mark.slow
def test_the_commands_of_the_page_work(tmp_path):
    secrets = {
        "SLACK_SIGNING_SECRET": "s",
        "SLACK_TOKEN": "xoxb-1",
        "BACKLOG_API_KEY": "k",
        "SHOP_SECRET": "whsec_" + "a" * 32,
    }
    commands = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
    assert len(commands) == 12
    for command in commands:
        done = run(["-m", *shlex.split(command)], tmp_path, **secrets)
        if "slack-event" in command:
            # No server runs here.
            assert done.returncode == 2, done.stderr
            assert "gesta serve" in done.stderr
        else:
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
