"""How many segments a text is sent in, which is what it costs: GSM 03.38 by septets, everything
else as UCS-2.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: One septet each.
_BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ"
    " !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
#: Two: an escape and the character, which stay together.
_EXTENSION: Final = frozenset("\f^{}\\[~]|€")
#: What one message holds, and what each of several does: their headers take the rest.
_SEPTETS, _SEPTETS_OF_MANY = 160, 153
_UNITS, _UNITS_OF_MANY = 70, 67


class Segments(msgspec.Struct, frozen=True):
    count: int
    encoding: str

    def __str__(self) -> str:
        return f"{self.count} segment{'' if self.count == 1 else 's'}, {self.encoding}"


def segments_of(text: str) -> Segments:
    """How the text is cut. A character of two septets or of two code units is never cut in half."""
    if all(character in _BASIC or character in _EXTENSION for character in text):
        widths = [1 if character in _BASIC else 2 for character in text]
        return Segments(_count(widths, _SEPTETS, _SEPTETS_OF_MANY), "GSM-7")
    widths = [1 if ord(character) < 0x10000 else 2 for character in text]
    return Segments(_count(widths, _UNITS, _UNITS_OF_MANY), "UCS-2")


def _count(widths: list[int], one: int, of_many: int) -> int:
    if sum(widths) <= one:
        return 1
    count, filled = 1, 0
    for width in widths:
        if filled + width > of_many:
            count, filled = count + 1, 0
        filled += width
    return count
