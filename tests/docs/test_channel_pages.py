"""The programs and commands on the pages of the channels do what the texts say, with their lines
unchanged.
"""

from __future__ import annotations

import pytest

from tests.docs.test_docs import ROOT, SECRET, blocks, program, run_all

SLACK, SMS, WEBHOOK = (ROOT / "docs" / f"{name}.md" for name in ("slack", "sms", "webhook"))


async def test_the_program_of_the_slack_page_posts_once_for_a_key(gesta):
    names = program(SLACK, "async def tell(")
    async with names["engine"]:
        await names["tell"](7)
        await names["tell"](7)
        await gesta.settle()
    assert [(effect.data["channel"], effect.text) for effect in gesta.sandbox.slack.effects] == [
        ("C012AB3CD", "7 paid")
    ]


async def test_the_test_on_the_slack_page_passes(gesta):
    await program(SLACK, "async def test_")["test_ops_hear_of_a_paid_order"](gesta)


async def test_the_program_of_the_sms_page_sends(gesta):
    names = program(SMS, "async def tell(")
    async with names["engine"]:
        await names["tell"]("+49 151 55501234")
        await gesta.settle()
    assert [effect.data["To"] for effect in gesta.sandbox.twilio.effects] == ["+4915155501234"]


async def test_the_program_of_the_webhook_page_posts_once_for_a_key(gesta, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    names = program(WEBHOOK, "async def tell(")
    async with names["engine"]:
        await names["tell"](7)
        await names["tell"](7)
        await gesta.settle()
    assert [effect.data for effect in gesta.sandbox.webhook.effects] == [{"order": 7}]


@pytest.mark.slow
@pytest.mark.parametrize("page", [SLACK, SMS, WEBHOOK], ids=lambda page: page.name)
def test_the_commands_of_the_page_work(page, tmp_path):
    (tmp_path / "paid.json").write_text(
        '[{"type": "section", "text": {"type": "mrkdwn", "text": "Order {{ number }}"}}]'
    )
    commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    secrets = {"SLACK_TOKEN": "xoxb-1-a", "TWILIO_TOKEN": "t", "HOOK_SECRET": SECRET}
    # A fresh folder has no store, and only a request or a process that works makes one.
    made = ['gesta submit notification.webhook \'{"type": "a", "data": {}}\'']
    assert len(commands) >= 3
    run_all(made + commands, tmp_path, **secrets)
