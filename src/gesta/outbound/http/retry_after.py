"""Retry-After: when a provider asks us to come back."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

#: Nobody is waited for longer than this, whatever the header says.
RETRY_AFTER_SECONDS_MAX = 86_400.0

#: Fractions are not in the RFC, but providers send them. More digits than this are far beyond the
#: limit anyway.
_SECONDS = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


def retry_after_seconds(value: str | None, now_ms: int) -> float | None:
    """Seconds from now, between 0 and a day.

    None when there is no such header or its value cannot be read.
    """
    if value is None:
        return None
    text = value.strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else _seconds_until(text, now_ms)
    return None if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


def _seconds_until(http_date: str, now_ms: int) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
        if moment.tzinfo is None:
            # asctime dates name no zone; HTTP means GMT.
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() - now_ms / 1000
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
