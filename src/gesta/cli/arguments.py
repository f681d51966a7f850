"""What people write on a command line, read: JSON from three places, durations, times, fields of
config.
"""

import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gesta.errors import BadInput
from gesta.runtime.settings import resolve_reference

#: Nothing of this size can become a request; reading on would only fill the memory.
SOURCE_BYTES_MAX = 4 * 1024 * 1024

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


def duration(text: str) -> timedelta:
    """`90`, `90s`, `15m`, `2h`, `1d`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration; write for instance 90s, 15m, 2h or 1d")
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than any request can live") from None


def point_in_time(text: str) -> datetime:
    """ISO-8601. Whether it has a time zone is for intake to judge, together with everything
    else.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write for instance 2030-01-31T09:00:00Z"
        ) from None


Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="The request's id, or the key that it was submitted with."),
]
Ttl = Annotated[
    timedelta | None,
    typer.Option(
        "--ttl",
        parser=duration,
        metavar="DURATION",
        help="Expires when not done after 90s, 15m, 2h, 1d.",
    ),
]


def json_document(source: str, what: str = "payload") -> object:
    """The JSON that is given itself, as @FILE, or as - for stdin."""
    where, text = what, source.encode(errors="surrogateescape")
    if source == "-":
        where, text = f"{what} from stdin", sys.stdin.buffer.read(SOURCE_BYTES_MAX + 1)
    elif source.startswith("@"):
        where, text = f"{what} from {source[1:]}", _file(source[1:], what)
    if len(text) > SOURCE_BYTES_MAX:
        raise BadInput(
            f"{where}: more than {SOURCE_BYTES_MAX} bytes; store it elsewhere and send a reference"
        )
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not valid JSON: {error}") from None


def field_value(name: str, text: str) -> str:
    """A field's text: given itself, as @FILE, - for stdin or env:NAME, so that a secret need not
    stand in the shell's history.
    """
    if text == "-":
        return sys.stdin.read(SOURCE_BYTES_MAX).rstrip("\r\n")
    return referred(name, text)


def referred(name: str, text: str) -> str:
    """The text behind @FILE or env:NAME; any other text is its own value."""
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
    """`name=value` each; stdin can be read for one of them."""
    given: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise BadInput(
                f"{text!r}: fields are written name=value, name=@FILE, name=- or name=env:NAME"
            )
        if name in given:
            raise BadInput(f"{name}: given twice")
        if value == "-" and "-" in given.values():
            raise BadInput(f"{name}: stdin is read for one field only")
        given[name] = value
    return given


def _file(name: str, what: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(SOURCE_BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(f"{what}: {name} cannot be read: {error.strerror}") from None
