"""Reads headers, bodies and queries of a call, with limits and with all field errors at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from gesta.api_types.requests import ACTOR
from gesta.api_types.structs import Asked
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.flows.validation import (
    decode_fields,
    error_text,
    field_errors,
    fields_of,
    holds_times,
)
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.route import JSON, Receive, Route
from gesta.intake.submit_options import is_text

Beside = Callable[[dict[str, Any]], Awaitable[Mapping[str, str]]]
#: Maximum number of parameters in a query.
PARAMETERS_MAX = 50
#: What decoding raises for text that is not JSON.
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
#: The key of the Exchange in the extensions of an ASGI scope.
EXCHANGE = "gesta.exchange"


class CallerGone(Exception):
    """The caller disconnected; nothing is answered."""


class Headers:
    """The headers of one call.

    A repeated header is refused: proxies and servers may read different ones, which attacks use.
    """

    __slots__ = ("_pairs", "_values")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs, self._values = pairs, dict(pairs)

    def __call__(self, name: str) -> str | None:
        wanted = name.encode()
        found = self._values.get(wanted)
        if found is None:
            return None
        if (
            len(self._values) != len(self._pairs)
            and sum(key == wanted for key, _ in self._pairs) > 1
        ):
            raise Problem(400, "repeated_header", f"the header {name} is repeated")
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise Problem(400, "bad_header", f"the header {name} is not UTF-8") from None


def check_actor(headers: Headers) -> None:
    """The actor is recorded in events, so it is checked."""
    name = headers("gesta-actor")
    if name is not None and not (is_text(name) and name.isprintable()):
        raise invalid({ACTOR: f"1 to {KEY_LENGTH_MAX} printable characters"})


def body_at_once(exchange: Exchange | None, headers: Headers, route: Route) -> bytes | None:
    """The body if it has arrived completely, as most have; None: read it.

    Raises 413 where it is longer than the route allows.
    """
    most = route.body_bytes_max
    body = None if exchange is None else exchange.body()
    if body is None:
        length = headers("content-length")
        if length is not None and (not length.isdecimal() or int(length) > most):
            raise _too_large(most)
    elif len(body) > most:
        raise _too_large(most)
    return body


async def read_body(receive: Receive, route: Route) -> bytes:
    """The body as it arrives; raises 413 where it is longer than the route allows."""
    most = route.body_bytes_max
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        part = message.get("body", b"")
        length += len(part)
        if length > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return part if len(parts) == 1 else b"".join(parts)


async def decode_body(
    raw: bytes, headers: Headers, route: Route, beside: Beside | None = None
) -> Any:
    """The body as the type of the route; raises all field errors at once.

    `beside` adds errors of parts that the type does not describe.
    """
    kind = route.body
    assert kind is not None
    if not raw and not route.needs_body:
        # Some clients send a content type without a body.
        return _nothing(kind)
    sent_as = headers("content-type") or ""
    if sent_as != JSON and (sent_as := sent_as.partition(";")[0].strip().lower()) != JSON:
        raise Problem(415, "not_json", f"send the body as {JSON}, not as {sent_as or 'nothing'}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        pass
    except UNREADABLE as error:
        raise unreadable(error, raw) from None
    try:
        given = msgspec.json.decode(raw)
    except UNREADABLE as error:
        raise unreadable(error, raw) from None
    if not isinstance(given, dict):
        raise invalid(
            {"body": "; ".join(filter(None, ("must be a JSON object", route.object_hint)))}
        )
    value, errors = decode_fields(kind, given)
    if value is None:
        raise invalid(errors if beside is None else {**errors, **await beside(given)})
    return value


def refuse_body(raw: bytes) -> None:
    """Refuse a body on a route without one: a reason or a choice in it must not be ignored
    silently.
    """
    if raw and raw.strip() != b"{}":
        raise invalid({"body": "this route takes no body; send the call without one"})


def decode_query(query_string: bytes, route: Route) -> Asked:
    """The query as the type of the route; raises all errors at once."""
    kind = route.query
    if not query_string:
        return _nothing(kind)
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=PARAMETERS_MAX,
            strict_parsing=True,
        )
    except ValueError:
        raise Problem(400, "bad_query", "the query cannot be read") from None
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in given:
            raise Problem(400, "repeated_parameter", f"the parameter {name!r} is repeated")
        given[name] = value
    errors = {}
    fields = {field.encode_name: field for field in fields_of(kind)}
    for name, value in list(given.items()):
        if name not in fields:
            errors[name] = (
                route.misplaced.get(name) or f"unknown; known: {', '.join(fields) or 'none'}"
            )
            continue
        try:
            given[name] = msgspec.convert(
                value, fields[name].type, strict=_is_text(fields[name].type)
            )
            if given[name] is None:
                # The text `null`.
                errors[name] = "is null; leave it out instead"
        except msgspec.ValidationError as error:
            errors[name] = error_text(error, fields[name].type)
    errors |= {
        name: "missing" for name, field in fields.items() if field.required and name not in given
    }
    if errors:
        raise invalid(errors)
    return kind(**{fields[name].name: value for name, value in given.items()})


@cache
def _is_text(kind: Any) -> bool:
    """Whether a value is a text in JSON, too. A bare number would pass as a time otherwise."""
    return holds_times(kind)


@cache
def _nothing(kind: type[Asked]) -> Asked:
    try:
        return msgspec.convert({}, kind)
    except msgspec.ValidationError:
        raise invalid(field_errors(kind, {})) from None


def _too_large(most: int) -> Problem:
    return Problem(
        413, "too_large", f"the body is longer than {most} bytes", headers={"Connection": "close"}
    )


def unreadable(error: Exception, raw: bytes | msgspec.Raw) -> Problem:
    """The problem for a body that is not JSON."""
    if not raw:
        return Problem(400, "malformed_json", "the body is empty; send a JSON object")
    if isinstance(error, RecursionError):
        return Problem(400, "too_deep", "the JSON is nested too deeply")
    return Problem(400, "malformed_json", f"the body is not JSON: {error}")


class Exchange(Protocol):
    """One call and its answer, where gesta's own server runs the API.

    Most calls are small. Through ASGI the head and the body of an answer are two system calls and
    two packets, and a body that has arrived is awaited. Other servers offer only ASGI.
    """

    def body(self) -> bytes | None:
        """The whole body, consumed; None: it has not arrived completely, use `receive`."""

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send the answer; False: nothing was sent, use `send`.

        The headers contain the length and none about the connection; names and values are valid in
        HTTP.
        """


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(EXCHANGE)
