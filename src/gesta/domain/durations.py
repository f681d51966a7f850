"""Times in ISO-8601, and durations: `500ms`, `5s`, `2m`, `2h`, `1d`, `1h30m`."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

EXAMPLES = "write a number with a unit, for instance 500ms, 5s, 2m, 2h, 1d or 1h30m"
#: Largest first, which is also the order in which a duration names its units.
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"\d{1,12}(?:\.\d{1,6})?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS_MS))


def parse_duration(text: object) -> timedelta:
    """Raises ValueError, with the right spelling in its text, for anything else.

    A bare number is refused: whether it means seconds, minutes or days is a guess.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) and text.isascii() else None
    parts = {} if match is None else {unit: n for unit, n in match.groupdict().items() if n}
    if not parts:
        raise ValueError(f"{text!r} is not a duration; {EXAMPLES}")
    try:
        return timedelta(
            milliseconds=sum(float(number) * _UNITS_MS[unit] for unit, number in parts.items())
        )
    except OverflowError:
        raise ValueError(f"{text!r} is too long; {EXAMPLES}") from None


def format_duration(duration: timedelta) -> str:
    """The spelling that `parse_duration` reads back, to the millisecond."""
    left = abs(round(duration.total_seconds() * 1000))
    text = "-" if duration < timedelta(0) else ""
    for unit, size in _UNITS_MS.items():
        count, left = divmod(left, size)
        if count:
            text += f"{count}{unit}"
    return text or "0s"


def iso(at_ms: int) -> str:
    """Epoch milliseconds as ISO-8601 in UTC with a Z."""
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=1_024)
def _second(epoch_seconds: int) -> str:
    # Cached, because most times are the current time.
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat()[:19]
