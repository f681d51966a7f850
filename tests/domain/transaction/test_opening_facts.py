"""The facts in the first event of a transaction."""

import msgspec
import pytest

from gesta.domain.money import Money
from gesta.domain.transaction.funds import Funds, opening_facts, read_funds


@pytest.mark.parametrize("gateway", ["", "stripe-eu"])
@pytest.mark.parametrize("amount", [Money("49.90", "EUR"), Money("0", "JPY")])
def test_the_first_event_has_the_amounts_as_every_view_has_them(amount, gateway):
    facts = opening_facts(amount, "sale", gateway)
    funds = read_funds(facts, "sale")
    opened = Funds(amount.currency, amount.exponent, amount.minor, "sale", gateway)
    opened = msgspec.structs.replace(opened, pending=amount.minor, intents={"sale": 1})
    assert funds == opened
    assert list(facts.items()) == list(msgspec.to_builtins(opened).items())
