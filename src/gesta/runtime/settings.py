"""Settings of a process: argument > GESTA_* > gesta.toml > default.

No other module reads the environment.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec

from gesta.domain.durations import EXAMPLES, format_duration, parse_duration
from gesta.errors import BadSettings

FILE = "gesta.toml"
PREFIX = "GESTA_"
#: `env:NAME` stands for the value of a variable.
REFERENCE = "env:"
#: A flow and its destination.
ALERTS_TO = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+:[!-~]([ -~]{0,254}[!-~])?")
WEB_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/%-]*)?")
RETENTION_MIN, RETENTION_MAX = timedelta(minutes=1), timedelta(days=36_500)
LOG_FORMATS = ("auto", "json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True)
class Settings:
    """What a process needs before it opens its store. `sources`: where each value comes from."""

    #: The store: sqlite:///file.db
    url: str = "sqlite:///gesta.db"
    #: The events, where they are to be in another database than the rest:
    #: kurrentdb://user:password@host:2113
    events_url: str | None = None
    #: A separate database for the queue: sqlite:///queue.db
    queue_url: str | None = None
    #: The views, where they are to be in another database than the events: redis://localhost:6379
    views_url: str | None = None
    #: The queue that inbound events pass through, where other programs read or write it too:
    #: sqs://eu-west-1/slack-events
    inbound_queue_url: str | None = None
    #: Credentials, keys and stored bodies, where they are to be in another database.
    vault_url: str | None = None
    #: 32 bytes in base64. Without it, a key file beside the SQLite file is used, or created.
    master_key: str | None = field(default=None, repr=False)
    #: The tenant that commands act for.
    tenant: str = "default"
    #: debug, info, warning, error or critical
    log_level: str = "warning"
    #: Of commands: json, text, or auto: text on a terminal, else json.
    log_format: str = "auto"
    #: `module:name` of an Engine with user-defined flows.
    app: str | None = None
    #: Private networks that outgoing requests may reach, e.g. ["10.1.0.0/16"].
    allow_private: tuple[str, ...] = ()
    #: How long after its last change an ended request is removed, e.g. 90d; its key stays known.
    #: None: never.
    retention: timedelta | None = None
    #: The most requests that may wait (live jobs and events not yet projected); beyond that, submit
    #: raises Overloaded.
    backlog_max: int = 1_000_000
    #: Megabytes that must stay free on the store's disk for accepted requests; below that, submit
    #: raises Overloaded.
    disk_free_min_mb: int = 200
    #: The address of the HTTP API.
    api_host: str = "127.0.0.1"
    api_port: int = 8420
    #: Calls per second for one API key and process; after a pause, twice as many at once.
    api_rate: int = 5_000
    #: Where alerts go, flow:destination: notification.slack:ops. In gesta.toml: [alerts] to = "…"
    alerts_to: str | None = None
    #: The URL at which providers reach this installation, e.g. https://gesta.example.com. Without
    #: it they are not asked for delivery receipts.
    public_url: str | None = None
    #: For tests: a further host for certificates of SNS, e.g. http://127.0.0.1:8025
    sns_url: str | None = None
    #: The last day on which a BullMQ job may hold more than a pointer, e.g. 2026-12-31: only its
    #: ids are read. None: such jobs are refused.
    enriched_jobs_until: date | None = None
    #: A running server, http://127.0.0.1:8420: commands call it with `api_key` instead of opening
    #: the store.
    server: str | None = None
    api_key: str | None = field(default=None, repr=False)
    #: Per-flow settings of gesta.toml: [flows.webhook] and so on.
    flows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        # A program may pass anything here, and a negative retention would remove every ended
        # request.
        errors: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "sources" and value is not None:
                source = self.sources.get(one.name, "Settings(…)")
                object.__setattr__(
                    self, one.name, _checked_or_noted(one.name, value, source, errors)
                )
        _refuse(errors)

    @property
    def databases(self) -> dict[str, str]:
        """Where each part of the store is: part → URL."""
        return {
            "events": self.events_url or self.url,
            "views": self.views_url or self.url,
            "queue": self.queue_url or self.url,
            "vault": self.vault_url or self.url,
        }


NAMES = tuple(one.name for one in fields(Settings) if one.name != "sources")
SECRET = frozenset({"master_key", "api_key"})
#: Setting → its smallest value.
WHOLE = {"backlog_max": 1, "disk_free_min_mb": 0, "api_port": 0, "api_rate": 1}


def load(arguments: Mapping[str, Any] | None = None, *, file: str | None = None) -> Settings:
    """Read all sources.

    Raises BadSettings with one line for each wrong setting and its source.
    """
    file = file or os.environ.get(f"{PREFIX}FILE")
    path = Path(file or FILE)
    values: dict[str, Any] = {}
    sources = dict.fromkeys(NAMES, "default")
    errors: list[str] = []
    unknown: list[str] = []
    if file is not None and not path.is_file():
        errors.append(f"{path}: no such file")
    layers = [
        (_from_file(path, errors), str(path)),
        (_from_environment(), "environment"),
        (dict(arguments or {}), "argument"),
    ]
    for layer, source in layers:
        for name, value in layer.items():
            if value is None:
                continue
            if name not in NAMES:
                unknown.append(f"{name}: unknown setting in {source}")
                continue
            where = f"{PREFIX}{name.upper()}" if source == "environment" else source
            values[name] = _checked_or_noted(name, value, where, errors)
            sources[name] = where
    if unknown:
        unknown[-1] += f"; known: {', '.join(NAMES)}"
    _refuse(errors + unknown)
    return Settings(**values, sources=sources)


def _refuse(errors: list[str]) -> None:
    if errors:
        raise BadSettings("\n".join(errors))


def odd_variables() -> list[str]:
    """Environment variables that look like settings and are not, with the closest setting."""
    known = {PREFIX + name.upper() for name in NAMES if name != "flows"} | {f"{PREFIX}FILE"}
    found = []
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            close = get_close_matches(name, known, n=1)
            found.append(
                f"{name} is not a setting and is ignored"
                + (f"; did you mean {close[0]}?" if close else "")
            )
    return found


def resolve_reference(text: str) -> str:
    """The value of the variable in `env:NAME`; any other text unchanged.

    Raises KeyError when the variable is not set.
    """
    return os.environ[text.removeprefix(REFERENCE)] if text.startswith(REFERENCE) else text


def keyword_arguments(table: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a table of gesta.toml gives for parameters of these types.

    A parameter `timeout_seconds` is written `timeout = "20s"` there. Raises ValueError that names
    every error of the table.
    """
    durations = {name.removesuffix("_seconds"): name for name in types if name.endswith("_seconds")}
    known = [name.removesuffix("_seconds") for name in types]
    arguments, errors = {}, []
    for name, value in sorted(table.items()):
        try:
            if name in durations:
                arguments[durations[name]] = parse_duration(value).total_seconds()
            elif name in known:
                arguments[name] = msgspec.convert(value, types[name])
            elif name in types:
                errors.append(
                    f"{name}: unknown; use {name.removesuffix('_seconds')} and {EXAMPLES}"
                )
            else:
                errors.append(f"{name}: unknown; known: {', '.join(known)}")
        except ValueError as error:
            errors.append(f"{name}: {str(error)[:1].lower()}{str(error)[1:].replace('`', '')}")
    if errors:
        raise ValueError("; ".join(errors))
    return arguments


def _from_file(path: Path, errors: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        errors.append(f"{path}: not valid TOML: {error}")
        return {}
    alerts = found.pop("alerts", {})
    if not isinstance(alerts, dict) or any(name != "to" for name in alerts):
        errors.append(
            f"alerts in {path}: write a table with `to`, for instance [alerts] to ="
            ' "notification.slack:ops"'
        )
        return found
    return found | {f"alerts_{name}": value for name, value in alerts.items()}


def _from_environment() -> dict[str, Any]:
    names = [name for name in NAMES if name != "flows"]
    return {
        name: os.environ[PREFIX + name.upper()]
        for name in names
        if PREFIX + name.upper() in os.environ
    }


def _checked_or_noted(name: str, value: Any, source: str, errors: list[str]) -> Any:
    """The checked value. A wrong one is added to the errors, so that all are reported at once."""
    try:
        return _checked(name, value, source)
    except BadSettings as error:
        errors.append(str(error))
        return value


def _checked(name: str, value: Any, source: str) -> Any:
    if name == "flows":
        if not isinstance(value, dict) or not all(
            isinstance(table, dict) for table in value.values()
        ):
            raise BadSettings(
                f"flows in {source}: write one table per flow, for instance [flows.webhook]"
            )
        return value
    if name == "allow_private":
        return _networks(value, source)
    if name == "retention":
        return _retention(value, source)
    if name == "enriched_jobs_until":
        return _date(name, value, source)
    if name in WHOLE:
        return _whole(name, value, source)
    if not isinstance(value, str):
        raise BadSettings(f"{name} in {source}: must be a string, not {type(value).__name__}")
    choices = {"log_level": LOG_LEVELS, "log_format": LOG_FORMATS}.get(name)
    if choices is not None and value not in choices:
        raise BadSettings(f"{name} in {source}: {value!r} is not one of {', '.join(choices)}")
    if name == "alerts_to" and not ALERTS_TO.fullmatch(value):
        raise BadSettings(
            f"alerts_to in {source}: write flow:destination, for instance notification.slack:ops"
        )
    if name in ("public_url", "sns_url"):
        return _url(name, value, source)
    return value


def _url(name: str, value: str, source: str) -> str:
    """The URL without a final slash, so that a path can follow."""
    if not WEB_ADDRESS.fullmatch(value):
        raise BadSettings(
            f"{name} in {source}: a URL like https://gesta.example.com is needed, without query and"
            " fragment"
        )
    return value.rstrip("/")


def _retention(value: Any, source: str) -> timedelta:
    try:
        duration = value if isinstance(value, timedelta) else parse_duration(value)
    except ValueError as error:
        raise BadSettings(f"retention in {source}: {error}") from None
    if not RETENTION_MIN <= duration <= RETENTION_MAX:
        raise BadSettings(
            f"retention in {source}: a duration from {format_duration(RETENTION_MIN)} to"
            f" {format_duration(RETENTION_MAX)} is needed, not {format_duration(duration)}; or"
            " leave it out"
        )
    return duration


def _date(name: str, value: Any, source: str) -> date:
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadSettings(
            f"{name} in {source}: a day like 2026-12-31 is needed, not {value!r}"
        ) from None


def _whole(name: str, value: Any, source: str) -> int:
    text = value.replace("_", "") if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdecimal():
        text = int(text)
    if type(text) is not int or text < WHOLE[name]:
        raise BadSettings(
            f"{name} in {source}: a whole number from {WHOLE[name]} is needed, not {value!r}"
        )
    return text


def _networks(value: Any, source: str) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise BadSettings(
            f"allow_private in {source}: a list of networks is needed, for instance ['10.1.0.0/16']"
        )
    networks = tuple(item.strip() for item in items if item.strip())
    for text in networks:
        try:
            ip_network(text)
        except ValueError as error:
            raise BadSettings(
                f"allow_private in {source}: {error}; write networks, for instance 10.1.0.0/16"
            ) from None
    return networks
