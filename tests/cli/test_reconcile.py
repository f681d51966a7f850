"""gesta reconcile: what it prints, on a fake gateway that only lists."""

from __future__ import annotations

from typing import Any

import pytest

from gesta.domain.money import Money
from gesta.errors import ListingFailed
from tests.payments.test_reconciliation import Listing, row

ON_THE_STORE_ONLY: frozenset[str] = frozenset()
WINDOW = ("--from", "2027-01-01", "--to", "2027-01-31T12:00:00+01:00")


@pytest.fixture
def rows(cli, monkeypatch):
    put = cli(
        "config",
        "put",
        "payment.gateway",
        "stripe-eu",
        "type=stripe",
        "account=acct_1",
        "api_key=sk_test_1",
    )
    assert put.code == 0, put.err
    listing: Any = Listing(row(), row(id="txn_2", kind="fee", amount=Money("-1.00", "EUR")))
    monkeypatch.setattr("gesta.admin.admin.gateways_of", lambda _: [listing])
    return listing


def test_differences_are_printed_as_table_json_and_csv(cli, rows):
    shown = cli("reconcile", "--gateway", "stripe-eu", *WINDOW)
    assert shown.code == 0, shown.err
    assert "missing_local" in shown.out
    assert "3 rows of the ledger: 1 fee, 1 missing_local" in shown.err
    found = cli("reconcile", "--gateway", "stripe-eu", *WINDOW, "--json").json
    assert (found["counts"], found["corrections"]) == ({"fee": 1, "missing_local": 1}, 0)
    lines = cli("reconcile", "--gateway", "stripe-eu", *WINDOW, "--csv").out.splitlines()
    assert lines == [
        "class,row,request,operation,gateway,record,corrected",
        "missing_local,txn_1,,,10.00 EUR,,",
        "fee,txn_2,,,1.00 EUR,,",
    ]


def test_a_wrong_gateway_or_window_is_refused(cli, rows):
    assert cli("reconcile", "--gateway", "nowhere", *WINDOW).code != 0
    wrong = cli("reconcile", "--gateway", "stripe-eu", "--from", "yesterday")
    assert wrong.code == 2
    assert "2027-01-31" in " ".join(wrong.err.split())
    turned = cli(
        "reconcile", "--gateway", "stripe-eu", "--from", "2027-02-01", "--to", "2027-01-01"
    )
    assert (turned.code, "at most 92 days" in " ".join(turned.err.split())) == (2, True)


def test_a_gateway_that_does_not_list_is_an_error_and_no_traceback(cli, rows, monkeypatch):
    async def fails(*_: object) -> None:
        raise ListingFailed("throttled", "Stripe asks to wait", 1.0)

    monkeypatch.setattr(rows, "list", fails)
    answer = cli("reconcile", "--gateway", "stripe-eu", *WINDOW)
    assert answer.code == 1, answer
    assert "the ledger cannot be read: throttled: Stripe asks to wait" in answer.err
    assert "Traceback" not in answer.err


def test_a_gateway_that_the_process_does_not_know_is_an_error_that_names_the_known_ones(cli):
    values = ("type=acmepay", "account=acct_1", "api_key=sk_test_1")
    put = cli("config", "put", "payment.gateway", "acme", *values)
    assert put.code == 0, put.err
    answer = cli("reconcile", "--gateway", "acme", *WINDOW)
    assert answer.code == 2, answer
    assert "no gateway 'acmepay', only: http, stripe" in " ".join(answer.err.split())
