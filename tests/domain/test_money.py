"""Money: exact amounts, named rounding, allocation without a remainder."""

import re
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.domain.currencies import CURRENCIES, WITHDRAWN
from gesta.domain.money import InvalidMoney, MixedCurrencies, Money, Rounding

MINOR = st.integers(-(10**12), 10**12)
CODE = st.sampled_from(sorted(CURRENCIES))


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [
        ("49.90", "EUR", 4990),
        ("49.9", "EUR", 4990),
        ("10", "JPY", 10),
        ("1.234", "KWD", 1234),
        ("1.234", "BHD", 1234),
        ("1", "CLF", 10_000),
        ("7.10", "MGA", 710),
        ("0.001", "IQD", 1),
        ("-0.05", "USD", -5),
        ("-0.00", "EUR", 0),
        ("-0", "JPY", 0),
        ("99999999999999999", "JPY", 10**17 - 1),
        ("99999999999999.999", "KWD", 10**17 - 1),
    ],
)
def test_the_smallest_unit_follows_the_digits_of_the_currency(amount, currency, minor):
    money = Money(amount, currency)
    assert money.minor == minor  # R1-41
    assert Money.of_minor(minor, currency) == money
    assert money.exponent == CURRENCIES[currency]


@pytest.mark.parametrize("minor", [10**17, -(10**17), 2**63, -(2**63), 10**40])
def test_no_amount_is_larger_than_every_reader_can_hold(minor):
    for currency in ("JPY", "EUR", "KWD", "CLF"):
        with pytest.raises(InvalidMoney):
            Money.of_minor(minor, currency)
    with pytest.raises(InvalidMoney):
        Money.of_minor(10**17 - 1, "EUR") + Money("0.01", "EUR")


def test_zero_has_one_spelling():
    assert str(-Money("0.00", "EUR")) == str(Money("-0.00", "EUR")) == "0.00 EUR"


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("10.005", "EUR", "EUR has 2 digits"),
        ("10.5", "JPY", "JPY has 0 digits"),
        ("1.0", "EURO", "not a currency"),
        ("1.00", "XAU", "not a currency"),
        ("1.00", "eur", "not a currency"),
        ("1,00", "EUR", "digits and a decimal point"),
        ("1e3", "EUR", "digits and a decimal point"),
        ("NaN", "EUR", "digits and a decimal point"),
        ("", "EUR", "digits and a decimal point"),
        (" 1", "EUR", "digits and a decimal point"),
        ("٣.00", "EUR", "digits and a decimal point"),
        (49.9, "EUR", "not 49.9"),
        (True, "EUR", "not True"),
        (4990, "EUR", "not 4990"),
        ("999999999999999999", "EUR", "too large"),
        ("100000000000000000", "JPY", "too large"),
        ("-100000000000000.000", "KWD", "too large"),
        (2**64, "EUR", "must be a string"),
    ],
)
def test_an_amount_that_the_currency_cannot_express_is_refused(amount, currency, text):
    with pytest.raises(InvalidMoney, match=text):
        Money(amount, currency)


@pytest.mark.parametrize("minor", [1.0, True, "1", None])
def test_only_a_whole_number_is_an_amount_of_the_smallest_unit(minor):
    with pytest.raises(InvalidMoney):
        Money.of_minor(minor, "EUR")


@pytest.mark.parametrize(
    ("rounding", "results"),
    [
        ("half_even", ["10.00", "10.02", "-10.00", "10.01"]),
        ("half_up", ["10.01", "10.02", "-10.01", "10.01"]),
        ("half_down", ["10.00", "10.01", "-10.00", "10.01"]),
        ("up", ["10.01", "10.02", "-10.01", "10.01"]),
        ("down", ["10.00", "10.01", "-10.00", "10.00"]),
        ("ceiling", ["10.01", "10.02", "-10.00", "10.01"]),
        ("floor", ["10.00", "10.01", "-10.01", "10.00"]),
    ],
)
def test_each_rounding_does_what_its_name_says(rounding: Rounding, results):
    amounts = ["10.005", "10.015", "-10.005", "10.0099"]
    found = [Money.rounded(one, "EUR", rounding).amount for one in amounts]
    assert found == results  # R1-41


def test_an_unknown_rounding_is_refused():
    with pytest.raises(InvalidMoney, match="half_even"):
        Money.rounded("1.005", "EUR", "nearest")  # type: ignore[arg-type]


@given(MINOR, CODE, st.lists(st.integers(0, 10**6), min_size=1, max_size=12).filter(any))
def test_the_parts_of_an_allocation_sum_to_the_whole(minor, code, weights):
    whole = Money.of_minor(minor, code)
    parts = whole.allocate(weights)
    assert sum(part.minor for part in parts) == minor
    for part, weight in zip(parts, weights, strict=True):
        exact = Fraction(minor * weight, sum(weights))
        assert abs(part.minor - exact) < 1


def test_an_allocation_gives_the_largest_remainders_the_units_that_are_left():
    assert [one.amount for one in Money("0.05", "EUR").allocate([3, 7])] == ["0.02", "0.03"]
    assert [one.amount for one in Money("1.00", "EUR").allocate([1, 1, 1])] == [
        "0.34",
        "0.33",
        "0.33",
    ]
    assert Money("-1.00", "EUR").allocate([1, 1, 1])[0].amount == "-0.34"


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [0.5, 0.5], [True]])
def test_weights_that_split_nothing_are_refused(weights):
    with pytest.raises(InvalidMoney):
        Money("1.00", "EUR").allocate(weights)


def test_two_currencies_never_mix():
    euro, yen = Money("1.00", "EUR"), Money("1", "JPY")
    for act in (lambda: euro + yen, lambda: euro - yen, lambda: euro < yen):
        with pytest.raises(MixedCurrencies):
            act()
    assert euro != yen


@given(MINOR, MINOR, CODE)
def test_sums_differences_and_order_are_those_of_the_smallest_unit(one, other, code):
    left, right = Money.of_minor(one, code), Money.of_minor(other, code)
    assert (left + right).minor == one + other
    assert (left - right).minor == one - other
    assert (left < right, left >= right) == (one < other, one >= other)
    assert -left == left * -1


@given(MINOR, CODE)
def test_stored_money_comes_back_unchanged(minor, code):
    money = Money.of_minor(minor, code)
    assert msgspec.json.decode(msgspec.json.encode(money), type=Money) == money


def test_a_share_is_rounded_by_name():
    price = Money("9.99", "EUR")
    assert price.share("0.19").amount == "1.90"
    assert price.share(Fraction(1, 3), "up").amount == "3.33"
    assert price.share(Fraction(1, 7), "down").amount == "1.42"
    for wrong in (0.19, "nineteen", 2):
        with pytest.raises(InvalidMoney):
            price.share(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        b'{"amount": 49.9, "currency": "EUR"}',
        b'{"amount": 4990, "currency": "EUR"}',
        b'{"amount": "49.901", "currency": "EUR"}',
        b'{"amount": "49.90"}',
        b'{"amount": "49.90", "currency": "EUR", "minor": 1}',
        b'{"amount": "49.90\\n", "currency": "EUR"}',
        b'{"amount": " 49.90", "currency": "EUR"}',
        b'{"amount": "4,990.00", "currency": "EUR"}',
        b'{"amount": "1e3", "currency": "EUR"}',
        b'{"amount": "", "currency": "EUR"}',
        b'{"amount": "49.90", "currency": "eur"}',
        b'{"amount": "49.90", "currency": "XXXX"}',
    ],
)
def test_json_that_is_no_money_is_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(wrong, type=Money)


def test_the_schema_says_how_an_amount_and_a_currency_are_written():
    fields = msgspec.json.schema(Money)["$defs"]["Money"]["properties"]
    assert re.fullmatch(fields["amount"]["pattern"], "49.90")
    assert not re.fullmatch(fields["amount"]["pattern"], "1e3")
    assert re.fullmatch(fields["currency"]["pattern"], "EUR")
    assert not re.fullmatch(fields["currency"]["pattern"], "eur")


def test_amounts_of_withdrawn_currencies_stay_readable():
    assert Money("1.00", "HRK").is_withdrawn
    assert not Money("1.00", "EUR").is_withdrawn
    assert not CURRENCIES.keys() & WITHDRAWN.keys()
