"""How a gateway treats idempotency keys, look-ups and currencies. Flows read it, not the code."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from gesta.domain.money import Money, exponent_of

#: After the first call, keys are trusted for their lifetime less this: clocks differ, and a call
#: takes time to arrive.
KEY_MARGIN_SECONDS = 3_600.0


class AmountNotSupported(ValueError):
    """The gateway cannot express the amount exactly."""


class GatewayDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one type of gateway."""

    type: str
    #: How long the gateway remembers a key at least. Later, the same key is a new operation.
    key_lifetime_seconds: float
    key_margin_seconds: float = KEY_MARGIN_SECONDS
    key_length_max: int = 255
    #: Which answers a repeated key gets again: every one, successes only, or none (no keys).
    replays: Literal["all", "success", "none"]
    #: The same key with another body: refused, or the first answer comes back.
    body_mismatch: Literal["error", "ignored"]
    #: How a call can be found: by our reference, the gateway's own id, or the key.
    look_up_by: tuple[Literal["reference", "id", "key"], ...]
    #: A look-up may miss a call this long after it was made.
    visible_after_seconds: float = 60.0
    #: The sandbox has a fake of it, which test requests reach. Without one they are refused.
    has_fake: bool = False
    verbs: frozenset[str]
    #: One authorization can be captured several times.
    multiple_captures: bool = False
    #: Currency → decimal places, where the gateway differs from ISO 4217.
    exponents: Mapping[str, int] = {}
    #: Currency → the amount in the gateway's units must be a multiple of this.
    steps: Mapping[str, int] = {}

    @property
    def resend_seconds(self) -> float:
        """How long after its first call an intent may be sent again."""
        return max(0.0, self.key_lifetime_seconds - self.key_margin_seconds)

    def units_of(self, money: Money) -> int:
        """The amount as the gateway counts it. Raises AmountNotSupported."""
        units, rest = _shifted(money.minor, self._exponent(money.currency) - money.exponent)
        if rest or units % self.steps.get(money.currency, 1):
            raise AmountNotSupported(
                f"{self.type} cannot express {money}: it counts {money.currency} in larger steps"
            )
        return units

    def money_of(self, units: int, currency: str) -> Money:
        """An amount that the gateway stated. Raises AmountNotSupported."""
        code = currency.upper()
        minor, rest = _shifted(units, exponent_of(code) - self._exponent(code))
        if rest:
            raise AmountNotSupported(f"{self.type} states {units} units of {code}, a fraction")
        return Money.of_minor(minor, code)

    def _exponent(self, currency: str) -> int:
        found = self.exponents.get(currency)
        return exponent_of(currency) if found is None else found


def _shifted(number: int, places: int) -> tuple[int, int]:
    """The number with its point moved to the right, and what does not fit into a whole one."""
    power: int = 10 ** abs(places)
    return (number * power, 0) if places >= 0 else divmod(number, power)
