"""`?wait=20s`: how long a caller wants an answer to be held back."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from gesta.api_types.requests import WAIT_SECONDS_MAX
from gesta.api_types.structs import Asked
from gesta.http_api.problem import invalid

_DURATION = re.compile(r"([0-9]{1,5})(ms|s)?")
#: The same with its bound, for those who read about it.
_PATTERN = r"^(([1-5]?[0-9]|60)s?|([1-5]?[0-9]{1,4}|60000)ms)$"


class Wait(Asked, frozen=True):
    wait: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": _PATTERN, "examples": ["20s"]})]
        | None
    ) = None


def wait_seconds(text: str | None) -> float:
    """The seconds that the text tells, at most 60; 0 for none."""
    if text is None:
        return 0.0
    match = _DURATION.fullmatch(text)
    if match is None:
        raise invalid({"wait": "write it like 20s or 500ms; at most 60s"})
    number = int(match[1])
    seconds = number / 1000 if match[2] == "ms" else float(number)
    if seconds > WAIT_SECONDS_MAX:
        raise invalid({"wait": f"at most {WAIT_SECONDS_MAX:g}s"})
    return seconds
