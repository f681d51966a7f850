"""Money: an exact amount in the smallest unit of one currency.

`Money("49.90", "EUR")` is 4990 cents. It is written as text, because a float cannot hold 0.10, and
stored as text: `{"amount": "49.90", "currency": "EUR"}`. The number of digits after the point is
that of the currency, so the exponent is part of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_DOWN,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    ROUND_UP,
    Context,
    Decimal,
)
from fractions import Fraction
from typing import Annotated, Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from gesta.domain.currencies import CURRENCIES, WITHDRAWN

Rounding = Literal["half_even", "half_up", "half_down", "up", "down", "ceiling", "floor"]
_ROUNDING: dict[str, str] = {
    "half_even": ROUND_HALF_EVEN,
    "half_up": ROUND_HALF_UP,
    "half_down": ROUND_HALF_DOWN,
    "up": ROUND_UP,
    "down": ROUND_DOWN,
    "ceiling": ROUND_CEILING,
    "floor": ROUND_FLOOR,
}
#: Far beyond any payment, but small enough for the integers of every reader.
MINOR_MAX = 10**17
_PLAIN = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,30})?")
_EXACT = Context(prec=60)
_EXPONENTS = {**WITHDRAWN, **CURRENCIES}
#: Currency → whether a text is an amount as it is stored, not below zero: most are, and need no
#: arithmetic. It has fewer digits than MINOR_MAX.
_IS_STORED = {
    currency: re.compile(
        rf"(?:0|[1-9][0-9]{{0,{16 - digits}}})" + (rf"\.[0-9]{{{digits}}}" if digits else "")
    ).fullmatch
    for currency, digits in _EXPONENTS.items()
}

# Money itself checks both, so that a pattern would only check them twice; it is for readers of the
# schema.
Amount = Annotated[
    str, msgspec.Meta(extra_json_schema={"pattern": r"^-?[0-9]{1,18}(\.[0-9]{1,30})?$"})
]
Currency = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[A-Z]{3}$"})]


class InvalidMoney(ValueError):
    """The amount, the currency or both are invalid; the text says which and why."""


class MixedCurrencies(InvalidMoney):
    """Amounts of two currencies were compared, added or subtracted."""


class Money(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """An amount of one currency. Raises InvalidMoney if it has more digits than the currency."""

    amount: Amount
    currency: Currency

    def __post_init__(self) -> None:
        is_stored = _IS_STORED.get(self.currency)
        if is_stored is not None and type(self.amount) is str and is_stored(self.amount):
            return
        digits = exponent_of(self.currency)
        minor = _minor(self.amount, self.currency, digits, None)
        text = _text(minor, digits)
        if text != self.amount:
            # One spelling for each amount: 49.9 and 49.90 are the same content.
            force_setattr(self, "amount", text)

    @classmethod
    def of_minor(cls, minor: int, currency: str) -> Money:
        """From the smallest unit: `Money.of_minor(4990, "EUR")`."""
        if type(minor) is not int:
            raise InvalidMoney(f"{minor!r} is not a whole number of the smallest unit")
        return cls(_text(minor, exponent_of(currency)), currency)

    @classmethod
    def rounded(cls, amount: str, currency: str, rounding: Rounding = "half_even") -> Money:
        """From a text that may have more digits than the currency."""
        digits = exponent_of(currency)
        return cls(_text(_minor(amount, currency, digits, rounding), digits), currency)

    @property
    def minor(self) -> int:
        """The amount in the smallest unit of the currency."""
        return int(self.amount.replace(".", "", 1))

    @property
    def exponent(self) -> int:
        """Digits after the point."""
        return len(self.amount.partition(".")[2])

    @property
    def is_withdrawn(self) -> bool:
        """Whether the currency is no longer in use: its amounts can be read but not moved."""
        return self.currency not in CURRENCIES

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"

    def __lt__(self, other: Money) -> bool:
        return self.minor < self._same(other)

    def __le__(self, other: Money) -> bool:
        return self.minor <= self._same(other)

    def __gt__(self, other: Money) -> bool:
        return self.minor > self._same(other)

    def __ge__(self, other: Money) -> bool:
        return self.minor >= self._same(other)

    def __add__(self, other: Money) -> Money:
        return self._of(self.minor + self._same(other))

    def __sub__(self, other: Money) -> Money:
        return self._of(self.minor - self._same(other))

    def __neg__(self) -> Money:
        return self._of(-self.minor)

    def __mul__(self, times: int) -> Money:
        if type(times) is not int:
            raise InvalidMoney(
                f"money can be multiplied only by a whole number, not by {times!r}; see share"
            )
        return self._of(self.minor * times)

    def share(self, ratio: str | Fraction, rounding: Rounding = "half_even") -> Money:
        """A share of it: `price.share("0.19")`, `price.share(Fraction(1, 3), "down")`."""
        if type(ratio) not in (str, Fraction):
            raise InvalidMoney(f"a ratio must be a string or a Fraction, not {ratio!r}")
        try:
            exact = self.minor * Fraction(ratio)
        except (ValueError, ZeroDivisionError):
            raise InvalidMoney(f"{ratio!r} is not a ratio") from None
        return self._of(_round(exact, rounding))

    def allocate(self, weights: Sequence[int]) -> list[Money]:
        """Split it by weights, by largest remainder: the parts always sum to the whole."""
        if not weights or any(type(one) is not int or one < 0 for one in weights):
            raise InvalidMoney("weights must be whole numbers, 0 or more")
        total = sum(weights)
        if total == 0:
            raise InvalidMoney("at least one weight must be above 0")
        sign, whole = (-1, -self.minor) if self.minor < 0 else (1, self.minor)
        parts = [whole * weight // total for weight in weights]
        # Of equal remainders the first gets the unit, so that the same call gives the same parts.
        by_remainder = sorted(
            range(len(weights)), key=lambda at: (-(whole * weights[at] % total), at)
        )
        for at in by_remainder[: whole - sum(parts)]:
            parts[at] += 1
        return [self._of(sign * part) for part in parts]

    def _of(self, minor: int) -> Money:
        return Money(_text(minor, self.exponent), self.currency)

    def _same(self, other: object) -> int:
        if not isinstance(other, Money):
            raise TypeError(f"{other!r} is not Money")
        if other.currency != self.currency:
            raise MixedCurrencies(f"{self} and {other} have different currencies")
        return other.minor


def exponent_of(currency: str) -> int:
    """Digits after the point of a currency. Raises InvalidMoney for an unknown code."""
    digits = _EXPONENTS.get(currency)
    if digits is None:
        raise InvalidMoney(f"{currency!r} is not a currency of ISO 4217")
    return digits


def _minor(amount: str, currency: str, digits: int, rounding: Rounding | None) -> int:
    if not isinstance(amount, str):
        raise InvalidMoney(f"an amount must be a string such as '49.90', not {amount!r}")
    if not _PLAIN.fullmatch(amount):
        raise InvalidMoney(
            f"{amount!r} is not an amount; write digits and a decimal point: '49.90'"
        )
    places = len(amount.partition(".")[2])
    if places <= digits:
        minor: int = int(amount.replace(".", "", 1)) * 10 ** (digits - places)
    elif rounding is None:
        raise InvalidMoney(f"{amount} {currency}: {currency} has {digits} digits after the point")
    else:
        minor = _round(Fraction(Decimal(amount)) * 10**digits, rounding)
    if abs(minor) >= MINOR_MAX:
        raise InvalidMoney(f"{amount} {currency} is too large")
    return minor


def _round(exact: Fraction, rounding: Rounding) -> int:
    if rounding not in get_args(Rounding):
        known = ", ".join(get_args(Rounding))
        raise InvalidMoney(f"{rounding!r} is not a rounding rule; known: {known}")
    whole, rest = divmod(exact.numerator, exact.denominator)
    # Only whether the rest is 0, below, at or above one half matters: no division is inexact.
    twice = 2 * rest
    part = (
        "0"
        if rest == 0
        else "0.5"
        if twice == exact.denominator
        else "0.25"
        if twice < exact.denominator
        else "0.75"
    )
    near = _EXACT.add(Decimal(whole), Decimal(part))
    return int(near.quantize(Decimal(1), rounding=_ROUNDING[rounding], context=_EXACT))


def _text(minor: int, digits: int) -> str:
    text = str(minor)
    if digits == 0:
        return text
    if minor < 0 or len(text) <= digits:
        sign, text = "-" if minor < 0 else "", str(abs(minor)).rjust(digits + 1, "0")
        return f"{sign}{text[:-digits]}.{text[-digits:]}"
    return f"{text[:-digits]}.{text[-digits:]}"
