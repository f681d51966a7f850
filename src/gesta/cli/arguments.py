"""Parses what users write on a command line: JSON, durations, times, fields of config."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer

from gesta.domain.durations import parse_duration
from gesta.domain.lifecycles import Status
from gesta.domain.money import InvalidMoney, Money
from gesta.errors import BadInput
from gesta.runtime.settings import resolve_reference

#: No request can be this large, so no more is read.
SOURCE_BYTES_MAX = 4 * 1024 * 1024


def duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def money(text: str) -> Money:
    amount, _, currency = text.strip().partition(" ")
    try:
        return Money(amount, currency.strip() or amount)
    except InvalidMoney as error:
        raise typer.BadParameter(f"{error}; write it like '49.90 EUR'") from None


def time_or_delay(text: str) -> datetime | timedelta:
    """`2h` is a time from now on; anything else must be ISO-8601. Submit checks the time zone
    together with all other fields.
    """
    try:
        return parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write for instance 2h, or 2030-01-31T09:00:00Z"
        ) from None


def time_or_age(text: str) -> datetime | timedelta:
    """`2h` is an age; anything else must be a time with its time zone."""
    found = time_or_delay(text)
    if isinstance(found, datetime) and found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; write for instance {text}Z")
    return found


def before(now_ms: int, given: datetime | timedelta | None) -> datetime | None:
    """The time that was given; an age counts back from now."""
    return _now(now_ms) - given if isinstance(given, timedelta) else given


def after(now_ms: int, given: datetime | timedelta | None) -> datetime | None:
    """The time that was given; a delay counts from now on."""
    return _now(now_ms) + given if isinstance(given, timedelta) else given


def _now(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def status(text: str) -> str:
    known = get_args(Status)
    if text not in known:
        hint = "; held requests are queued or unknown: `gesta list --held`"
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(map(repr, known))}{hint if text == 'held' else ''}"
        )
    return text


Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="Id of the request, or the key it was submitted with."),
]
IN_STATUS = f"In this status: {', '.join(get_args(Status))}."
InStatus = Annotated[
    str | None, typer.Option("--status", parser=status, metavar="STATUS", help=IN_STATUS)
]
Cursor = Annotated[
    str | None,
    typer.Option("--cursor", metavar="CURSOR", help="Continue after this cursor of a list."),
]
Ttl = Annotated[
    timedelta | None,
    typer.Option(
        "--ttl",
        parser=duration,
        metavar="DURATION",
        help="Let it expire if it is not done after this time, e.g. 15m, 2h, 1d.",
    ),
]


def json_document(source: str, what: str = "payload") -> object:
    """JSON as text, from @FILE, or from stdin (-)."""
    where, text = what, source.encode(errors="surrogateescape")
    if source == "-":
        where, text = f"{what} from stdin", sys.stdin.buffer.read(SOURCE_BYTES_MAX + 1)
    elif source.startswith("@"):
        where, text = f"{what} from {source[1:]}", _file(source[1:], what)
    if len(text) > SOURCE_BYTES_MAX:
        raise BadInput(f"{where}: more than {SOURCE_BYTES_MAX} bytes; submit a reference instead")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not valid JSON: {error}") from None


def field_value(name: str, text: str) -> str:
    """A field's text: literal, or from @FILE, - (stdin) or env:NAME, which keep a secret out of the
    shell's history.
    """
    if text == "-":
        return sys.stdin.read(SOURCE_BYTES_MAX).rstrip("\r\n")
    return referred(name, text)


def referred(name: str, text: str) -> str:
    """The text behind @FILE or env:NAME; any other text unchanged."""
    if text.startswith("@"):
        try:
            return _file(text[1:], name).decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise BadInput(f"{name}: {text[1:]} is not UTF-8 text") from None
    try:
        return resolve_reference(text)
    except KeyError:
        raise BadInput(f"{name}: the variable {text.removeprefix('env:')} is not set") from None


def assignments(texts: list[str]) -> dict[str, str]:
    """Parses `name=value` texts; only one of them may be `name=-`."""
    given: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInput(f"{text!r}: write name=value, name=@FILE, name=- or name=env:NAME")
        if name in given:
            raise BadInput(f"{name}: given twice")
        if value == "-" and "-" in given.values():
            raise BadInput(f"{name}: only one field can be read from stdin")
        given[name] = value
    return given


def _file(name: str, what: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(SOURCE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{what}: {name} cannot be read: {error.strerror}") from None
