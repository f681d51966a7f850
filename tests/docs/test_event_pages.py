"""The pages about event webhooks and delivery receipts: the program runs, the commands work."""

from __future__ import annotations

import pytest

from tests.docs.test_docs import ROOT, blocks, run, run_all

EVENTS, RECEIPTS = ROOT / "docs" / "event-webhooks.md", ROOT / "docs" / "delivery-receipts.md"


@pytest.mark.slow
@pytest.mark.parametrize("page", [EVENTS, RECEIPTS], ids=lambda page: page.name)
def test_the_commands_of_the_page_work(page, tmp_path):
    commands = [line for block in blocks(page, "sh") for line in block.splitlines()]
    # The first request creates the store.
    made = ['gesta submit notification.webhook \'{"type": "a", "data": {}}\'']
    assert len(commands) >= 2
    run_all(made + commands, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_settings_of_the_pages_are_read(number, tmp_path):
    (tmp_path / "gesta.toml").write_text("\n".join(blocks((EVENTS, RECEIPTS)[number], "toml")))
    done = run(["-m", "gesta", "settings", "--json"], tmp_path)
    assert ("notification.slack:ops", "https://gesta.example.com")[number] in done.stdout, (
        done.stderr
    )


@pytest.mark.slow
def test_the_program_of_the_receipts_page_records_a_delivery(tmp_path):
    (text,) = blocks(RECEIPTS, "python")
    (tmp_path / "page.py").write_text(text)
    done = run(["page.py"], tmp_path)
    assert done.stdout == "delivered\n", done.stderr
