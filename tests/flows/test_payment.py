"""What every gateway shares: our reference, and amounts in the units of a gateway."""

import pytest

from gesta.domain.money import Money
from gesta.flows.payment.descriptor import AmountNotSupported, GatewayDescriptor
from gesta.flows.payment.gateway import Reference

ID = "01939d3c-0000-7000-8000-000000000001"
DESCRIPTOR = GatewayDescriptor(
    type="any",
    key_lifetime_seconds=86_400,
    replays="all",
    body_mismatch="error",
    look_up_by=("reference",),
    verbs=frozenset({"sale"}),
    exponents={"MGA": 0, "ISK": 2},
    steps={"ISK": 100, "KWD": 10},
)


def test_a_reference_is_read_back():
    reference = Reference("acme", "payment.card", ID, "capture", 2)
    assert str(reference) == f"acme:payment.card:{ID}:capture:2"
    assert Reference.parse(str(reference)) == reference


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "order-7",
        f"acme:payment.card:{ID}:capture",
        f"acme:payment.card:{ID}:capture:x",
        f"acme:payment.card:{ID}:capture:1:2",
        "acme:payment.card:7:capture:1",
        f"{{acme}}:payment.card:{ID}:capture:1",
        f"acme:card:{ID}:capture:1",
    ],
)
def test_a_reference_of_another_program_is_not_ours(text):
    assert Reference.parse(text) is None


def test_nothing_may_be_sent_from_23_hours_after_the_first_call():
    assert DESCRIPTOR.resend_seconds == 23 * 3_600  # S1-4


@pytest.mark.parametrize(
    ("money", "units"),
    [
        (Money("49.90", "EUR"), 4_990),
        (Money("500", "JPY"), 500),
        (Money("1.230", "KWD"), 1_230),
        (Money("10.00", "MGA"), 10),
        (Money("5", "ISK"), 500),
    ],
)
def test_an_amount_is_counted_as_the_gateway_counts(money, units):
    assert DESCRIPTOR.units_of(money) == units  # S1-11
    assert DESCRIPTOR.money_of(units, money.currency.lower()) == money


@pytest.mark.parametrize("money", [Money("10.50", "MGA"), Money("1.234", "KWD")])
def test_an_amount_that_the_gateway_cannot_express_is_refused(money):
    with pytest.raises(AmountNotSupported, match=money.currency):
        DESCRIPTOR.units_of(money)


def test_a_fraction_of_a_unit_is_refused():
    with pytest.raises(AmountNotSupported, match="ISK"):
        DESCRIPTOR.money_of(550, "isk")
