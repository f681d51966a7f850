"""gesta tx: authorize, capture and show a transaction on one file."""

from __future__ import annotations


def test_what_is_authorized_can_be_shown_and_not_captured_before_its_end(cli):
    made = cli(
        "tx",
        "authorize",
        "49.90 EUR",
        "--source",
        "pm_1",
        "--gateway",
        "eu",
        "--key",
        "o-7",
        "--json",
    )
    assert made.code == 0, made.err
    shown = cli("tx", "show", "o-7", "--json").json
    assert (shown["status"], shown["requested"]["amount"]) == ("queued", "49.90")
    refused = cli("tx", "capture", "o-7", "--key", "c-1", "--amount", "20.00 EUR")
    assert refused.code != 0
    assert "still being executed" in refused.err
    wrong = cli("tx", "capture", "o-7", "--key", "c-1", "--amount", "20.001 EUR")
    assert wrong.code == 2
    assert "EUR has 2 digits" in " ".join(wrong.err.split())
    assert "no transaction waits" in cli("tx", "unknown").err
