"""The log of a command on stderr: JSON lines for programs, text for people."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.cli.output import visible

if TYPE_CHECKING:
    from gesta.runtime.settings import Settings

LOGGER = logging.getLogger("gesta")


def silence_log() -> None:
    """Log nothing until `start_log`, not even through Python's handler of last resort."""
    LOGGER.handlers[:] = [logging.NullHandler()]


def start_log(settings: Settings) -> None:
    """Log to stderr. The format `auto` is text on a terminal, else JSON."""
    handler = logging.StreamHandler()
    is_text = settings.log_format == "text" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    if is_text:
        handler.setFormatter(TextFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.propagate = False
    LOGGER.setLevel(settings.log_level.upper())


class TextFormatter(logging.Formatter):
    """`23:59:59.123 warning  attempt failed  flow=billing.receipt reason=timeout`."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        try:
            fields = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            fields = {"event": text}
        at = str(fields.pop("timestamp", ""))[11:23]
        level = str(fields.pop("level", record.levelname.lower()))
        event = visible(str(fields.pop("event", "")))
        # A traceback keeps its lines; every other value stays on one line.
        trace = str(fields.pop("traceback", ""))
        values = " ".join(
            f"{name}={visible(value if isinstance(value, str) else json.dumps(value))}"
            for name, value in fields.items()
            if value not in (None, "")
        )
        lines = [f"{at} {level:<8} {event}  {values}".strip()]
        lines += [f"    {visible(line)}" for line in trace.splitlines()]
        return "\n".join(lines)
