"""Validation that reports every error at once, where msgspec stops at the first."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from math import isfinite
from typing import Any, TypeVar

import msgspec

from gesta.domain.events import Actor
from gesta.domain.ids import TENANT, TENANT_RULE
from gesta.flows.flow import AnyObject

T = TypeVar("T", bound=msgspec.Struct)

#: Unknown fields that are reported. An answer must not be much larger than its request.
UNKNOWN_MAX = 50
#: Depth of nested objects and lists in a payload, because every reader of it recurses that deep.
NESTING_MAX = 100
TOO_DEEP = f"nested too deeply: at most {NESTING_MAX} nested objects and lists"
#: Years that every reader of a stored time can show, with an offset.
YEARS = (1970, 9_000)
TIME_EXAMPLE = "2030-01-31T09:00:00Z"
#: How the sentences of msgspec about a time begin, once they are worded.
_NOT_A_TIME = ("invalid RFC3339 encoded datetime", "expected 'datetime'")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")


def is_too_deep(body: bytes) -> bool:
    if body.find(b"{", 1) < 0 and b"[" not in body:
        # Nothing is nested. Looking for a bracket costs much less than counting them.
        return False
    if body.count(b"[") + body.count(b"{") <= NESTING_MAX:
        # Most payloads have fewer brackets in total.
        return False
    depth = 0
    for byte in _STRING.sub(b"", body):
        if byte in _OPEN:
            depth += 1
            if depth > NESTING_MAX:
                return True
        elif byte in _CLOSE:
            depth -= 1
    return False


def field_errors(kind: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, str]:
    """Field → error, for every field of `kind`, and for the first unknown keys."""
    fields = {field.encode_name: field for field in fields_of(kind)}
    unknown = islice((name for name in given if name not in fields), UNKNOWN_MAX)
    errors = dict.fromkeys(unknown, f"unknown field; known: {', '.join(fields)}")
    for name, field in fields.items():
        if name not in given:
            if field.required:
                words = _words(msgspec.inspect.type_info(field.type))
                errors[name] = (
                    f"missing; known: {', '.join(map(str, words))}" if words else "missing"
                )
            continue
        try:
            msgspec.convert(given[name], field.type, str_keys=True)
        except msgspec.ValidationError as error:
            errors[name] = error_text(error, field.type)
    return errors


def decode_fields(kind: type[T], given: object) -> tuple[T | None, dict[str, str]]:
    """The value, or every error of a JSON object that does not fit."""
    if not isinstance(given, dict):
        return None, {"payload": "must be a JSON object"}
    if issubclass(kind, AnyObject):
        return kind(given), {}
    fields: dict[str, Any] = given
    try:
        try:
            value = msgspec.convert(fields, kind)
        except msgspec.ValidationError:
            fields = _with_integers(fields)
            value = msgspec.convert(fields, kind)
        errors = naive_times(value)
        return (None, errors) if errors else (value, {})
    except msgspec.ValidationError as error:
        return None, field_errors(kind, fields) or {"payload": _worded(str(error))}
    except RecursionError:
        return None, {"payload": TOO_DEEP}


def _with_integers(given: Any) -> Any:
    """With integers for floats such as 7.0: JSON has one kind of number, msgspec has two."""
    match given:
        case dict():
            return {name: _with_integers(value) for name, value in given.items()}
        case list():
            return [_with_integers(value) for value in given]
        case float() if given.is_integer():
            return int(given)
        case _:
            return given


def value_errors(value: msgspec.Struct) -> dict[str, str]:
    """Every error of a value that a program constructed: msgspec does not check constructors."""
    errors = {}
    for field in fields_of(type(value)):
        try:
            # Encoded and decoded, so that values that JSON cannot hold (NaN, lone surrogates) are
            # found now.
            msgspec.json.decode(msgspec.json.encode(getattr(value, field.name)), type=field.type)
        except msgspec.ValidationError as error:
            errors[field.encode_name] = error_text(error, field.type)
        except (TypeError, ValueError) as error:
            errors[field.encode_name] = f"cannot be stored as JSON: {error}"
    return naive_times(value) | errors


def naive_times(value: object, path: str = "") -> dict[str, str]:
    """Path → error for every time without a time zone and every float that JSON would turn into
    null.
    """
    if not path and _is_placed(value):
        return {}
    parts: list[tuple[str, object]] = []
    if isinstance(value, datetime):
        return (
            {}
            if value.tzinfo is not None
            else {path: "a time needs a time zone, for instance datetime.now(UTC)"}
        )
    if isinstance(value, float) and not isfinite(value):
        return {path: "not a number that JSON can hold"}
    if isinstance(value, msgspec.Struct):
        dot = path and f"{path}."
        parts = [(f"{dot}{stored}", getattr(value, name)) for name, stored in _names(type(value))]
    elif isinstance(value, Mapping):
        parts = [(f"{path}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    return {name: error for part, item in parts for name, error in naive_times(item, part).items()}


_PLAIN = frozenset({str, int, bool, type(None)})


def _is_placed(value: object) -> bool:
    """The same check without paths, for the common case."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    # The common cases of every request first.
    if isinstance(value, msgspec.Struct):
        for name in _open_names(type(value)):
            part = getattr(value, name)
            if part is not None and not _is_placed(part):
                return False
        return True
    if kind is dict:
        values = value.values()  # type: ignore[attr-defined]
        return _PLAIN.issuperset(map(type, values)) or all(map(_is_placed, values))
    if isinstance(value, datetime):
        return value.tzinfo is not None
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_placed, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_placed, value))
    return True


@cache
def _open_names(kind: type[msgspec.Struct]) -> list[str]:
    closed = (
        msgspec.inspect.StrType,
        msgspec.inspect.IntType,
        msgspec.inspect.BoolType,
        msgspec.inspect.NoneType,
    )

    def is_closed(part: msgspec.inspect.Type) -> bool:
        return isinstance(part, closed) or (
            isinstance(part, msgspec.inspect.UnionType) and all(map(is_closed, part.types))
        )

    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return [field.name for field in fields if not is_closed(field.type)]


def open_names(kind: type[msgspec.Struct]) -> list[str] | None:
    """The fields of type Any, if all others hold strings and integers; otherwise None."""
    bare = (
        msgspec.inspect.AnyType,
        msgspec.inspect.StrType,
        msgspec.inspect.IntType,
        msgspec.inspect.BoolType,
        msgspec.inspect.NoneType,
    )

    def is_bare(part: msgspec.inspect.Type, outer: frozenset[type] = frozenset()) -> bool:
        match part:
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                return is_bare(key, outer) and is_bare(value, outer)
            case msgspec.inspect.ListType(item_type=item):
                return is_bare(item, outer)
            case msgspec.inspect.UnionType(types=types):
                return all(is_bare(one, outer) for one in types)
            case msgspec.inspect.StructType(cls=cls, fields=fields):
                # Structs compare field by field. One that contains itself is left to the search.
                return cls not in outer and all(
                    is_bare(field.type, outer | {cls}) for field in fields
                )
            case _:
                return isinstance(part, bare)

    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return _open_names(kind) if all(is_bare(field.type) for field in fields) else None


def comes_back(names: Sequence[str] | None, value: object, stored: object) -> bool:
    """Whether these fields survive JSON unchanged. Then they contain no time and no NaN or
    infinity.
    """
    if names is None:
        return False
    for name in names:  # noqa: SIM110 -- done for every request, and quicker than a generator
        if getattr(value, name) != getattr(stored, name):
            return False
    return True


def tenant_errors(tenant: object) -> dict[str, str]:
    return {} if isinstance(tenant, str) and TENANT.fullmatch(tenant) else {"tenant": TENANT_RULE}


def actor_errors(actor: object) -> dict[str, str]:
    if actor is None:
        return {}
    if is_usual_actor(actor):
        # The common case; every API call has an actor.
        return {}
    if isinstance(actor, Actor) and not value_errors(actor):
        return {}
    return {"actor": "an Actor(user_id, roles) of strings"}


def is_usual_actor(actor: object) -> bool:
    """The fast check, made for every API call."""
    if type(actor) is not Actor or type(actor.user_id) is not str or not actor.user_id.isascii():
        return False
    roles: object = actor.roles
    return roles == () or (
        type(roles) is tuple and all(type(word) is str and word.isascii() for word in roles)
    )


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


@cache
def _names(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Field names in Python and in JSON, cached because msgspec reads the annotations each time."""
    return [(field.name, field.encode_name) for field in fields_of(kind)]


def holds_times(kind: type[msgspec.Struct]) -> bool:
    """Whether a value of this type can contain a time and must be searched for one."""
    seen: set[object] = set()

    def look(part: object) -> bool:
        if isinstance(part, msgspec.inspect.DateTimeType | msgspec.inspect.AnyType):
            return True
        if isinstance(part, tuple):
            return any(map(look, part))
        if not isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
            return False
        if isinstance(part, msgspec.inspect.StructType):
            if part.cls in seen:
                return False
            seen.add(part.cls)
        return any(look(getattr(part, field.name)) for field in msgspec.structs.fields(part))

    return look(msgspec.inspect.type_info(kind))


def error_text(error: msgspec.ValidationError, kind: Any) -> str:
    """The error in a sentence, with the allowed values where it has a list of them."""
    text = _worded(str(error))
    if "matching regex" in text and (example := _example(msgspec.inspect.type_info(kind))):
        return f"does not have the expected form; for instance {example}"
    if text.startswith(_NOT_A_TIME):
        return f"{text}; write a time with its time zone, for instance {TIME_EXAMPLE}"
    if not text.startswith("invalid enum value"):
        return text
    words = _words(msgspec.inspect.type_info(kind))
    return f"{text}; known: {', '.join(map(str, words))}" if words else text


def _example(part: msgspec.inspect.Type) -> str:
    """An example of a text that must match a pattern, also inside unions and lists."""
    if isinstance(part, msgspec.inspect.Metadata):
        given: list[str] = (part.extra_json_schema or {}).get("examples", [])
        return given[0] if given else ""
    inner = (*getattr(part, "types", ()), getattr(part, "item_type", None))
    return next((found for one in inner if one is not None and (found := _example(one))), "")


def _words(part: msgspec.inspect.Type) -> tuple[object, ...]:
    """The allowed values of a type, also inside unions and lists."""
    if isinstance(part, msgspec.inspect.LiteralType):
        return part.values
    inner = (
        part.types
        if isinstance(part, msgspec.inspect.UnionType)
        else (getattr(part, "item_type", None), *getattr(part, "item_types", ()))
    )
    return next((words for one in inner if one is not None and (words := _words(one))), ())


def _worded(text: str) -> str:
    """Msgspec's sentence without its capital letter and its path."""
    text = text[:1].lower() + text[1:]
    return text.replace(" - at `$`", "").replace("`", "'")
