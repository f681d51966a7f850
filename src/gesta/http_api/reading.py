"""What a caller sent, read with bounds: headers once each, bodies of a size, JSON of a type with
every fault at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from gesta.api_types.requests import ACTOR
from gesta.api_types.structs import Asked
from gesta.domain.ids import KEY_LENGTH_MAX
from gesta.flows.validation import decode_fields, error_text, field_errors, fields_of
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.route import JSON, Receive, Route
from gesta.intake.submit_options import is_text

Beside = Callable[[dict[str, Any]], Awaitable[Mapping[str, str]]]
#: Parameters of one query. More are somebody's experiment.
PARAMETERS_MAX = 50
#: What reading JSON raises where it is none.
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
#: Where it stands among a scope's extensions.
EXCHANGE = "gesta.exchange"


class CallerGone(Exception):
    """Nobody is there any more to be answered."""


class Headers:
    """The headers of one call.

    One that is there twice is refused: which of the two counts is what attacks are made of.
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
            raise Problem(400, "repeated_header", f"the header {name} stands there twice")
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise Problem(400, "bad_header", f"the header {name} is no UTF-8") from None


def check_actor(headers: Headers) -> None:
    """Whom a key acts for goes into events for ever."""
    name = headers("gesta-actor")
    if name is not None and not (is_text(name) and name.isprintable()):
        raise invalid({ACTOR: f"1 to {KEY_LENGTH_MAX} printable characters"})


def body_at_once(exchange: Exchange | None, headers: Headers, route: Route) -> bytes | None:
    """The whole body where it is there already, as most are; None: read it.

    Raises where it is longer than the route takes.
    """
    most = route.body_bytes_max
    told = headers("content-length")
    if told is not None and (not told.isdecimal() or int(told) > most):
        raise _too_large(most)
    body = None if exchange is None else exchange.body()
    if body is not None and len(body) > most:
        raise _too_large(most)
    return body


async def read_body(receive: Receive, route: Route) -> bytes:
    """The whole body as it comes, as long as it is no longer than the route takes."""
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
    """The body as its route's type; raises with every fault at once.

    `beside` tells faults of what the type leaves open.
    """
    kind = route.body
    assert kind is not None
    if not raw and not route.needs_body:
        # Whatever it is sent as: some clients name a kind of nothing, too.
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
    value, faults = decode_fields(kind, given)
    if value is None:
        raise invalid(faults if beside is None else {**faults, **await beside(given)})
    return value


def refuse_body(raw: bytes) -> None:
    """Where none is taken: what somebody says there, a reason or a choice, must not be lost in
    silence.
    """
    if raw and raw.strip() != b"{}":
        raise invalid(
            {
                "body": (
                    "none is taken here, and nothing of it would be kept; send the call without it"
                )
            }
        )


def decode_query(query_string: bytes, route: Route) -> Asked:
    """The parameters of a query as their type; raises with every fault at once."""
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
            raise Problem(400, "repeated_parameter", f"the parameter {name!r} stands there twice")
        given[name] = value
    faults = {}
    fields = {field.encode_name: field for field in fields_of(kind)}
    for name, value in list(given.items()):
        if name not in fields:
            faults[name] = (
                route.misplaced.get(name) or f"unknown; known: {', '.join(fields) or 'none'}"
            )
            continue
        try:
            given[name] = msgspec.convert(value, fields[name].type, strict=False)
            if given[name] is None:
                # The text `null`; whoever means nothing leaves it out.
                faults[name] = "is null; leave it out instead"
        except msgspec.ValidationError as error:
            faults[name] = error_text(error, fields[name].type)
    faults |= {
        name: "missing" for name, field in fields.items() if field.required and name not in given
    }
    if faults:
        raise invalid(faults)
    return kind(**{fields[name].name: value for name, value in given.items()})


@cache
def _nothing(kind: type[Asked]) -> Asked:
    try:
        return msgspec.convert({}, kind)
    except msgspec.ValidationError:
        raise invalid(field_errors(kind, {})) from None


def _too_large(most: int) -> Problem:
    return Problem(
        413, "too_large", f"at most {most} bytes are taken", headers={"Connection": "close"}
    )


def unreadable(error: Exception, raw: bytes | msgspec.Raw) -> Problem:
    """What is told of a text that is no JSON at all."""
    if not raw:
        return Problem(400, "malformed_json", "the body is empty; send a JSON object")
    if isinstance(error, RecursionError):
        return Problem(400, "too_deep", "the JSON is nested too deeply")
    return Problem(400, "malformed_json", f"the body is no JSON: {error}")


class Exchange(Protocol):
    """One call and its answer, where our own server runs the API.

    Most calls are small. Through ASGI, head and body of an answer are two system calls and two
    packets, and a body that has come already is waited for. Any other server offers ASGI alone.
    """

    def body(self) -> bytes | None:
        """All of the body, which nobody will receive again; None: it is not all there, receive
        it.
        """

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer; False: nothing was sent, send it.

        The headers tell the length and nothing of the connection, in names and values that HTTP
        allows.
        """


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(EXCHANGE)
