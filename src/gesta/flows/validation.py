"""Bad input, all of it at once: msgspec stops at the first fault, a person wants to hear of every
one.
"""

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

#: Unknown fields that are told. Whoever sends more of them must not get twenty times as much back.
UNKNOWN_MAX = 50
#: Objects and lists inside each other in a payload. Whoever reads one, anywhere on the road, may
#: have to go as deep as that.
NESTING_MAX = 100
TOO_DEEP = f"nested too deeply: at most {NESTING_MAX} objects and lists may stand inside each other"
#: Years that every reader of a stored time can show, whatever is added to it.
YEARS = (1970, 9_000)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_OPEN, _CLOSE = frozenset(b"[{"), frozenset(b"]}")


def is_too_deep(body: bytes) -> bool:
    """Whether JSON has more inside each other than is taken."""
    if body.count(b"[") + body.count(b"{") <= NESTING_MAX:
        # Most have fewer in all, which is told at once.
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
    """Field → what is wrong with it, for every field of `kind` and the keys that it does not have;
    of those, the first ones.
    """
    fields = {field.encode_name: field for field in fields_of(kind)}
    unknown = islice((name for name in given if name not in fields), UNKNOWN_MAX)
    faults = dict.fromkeys(unknown, f"unknown field; known: {', '.join(fields)}")
    for name, field in fields.items():
        if name not in given:
            if field.required:
                words = _words(msgspec.inspect.type_info(field.type))
                faults[name] = (
                    f"missing; known: {', '.join(map(str, words))}" if words else "missing"
                )
            continue
        try:
            msgspec.convert(given[name], field.type, str_keys=True)
        except msgspec.ValidationError as error:
            faults[name] = fault_text(error, field.type)
    return faults


def decode_fields(kind: type[T], given: object) -> tuple[T | None, dict[str, str]]:
    """The value, or every fault of a JSON object that does not fit."""
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
        faults = naive_times(value)
        return (None, faults) if faults else (value, {})
    except msgspec.ValidationError as error:
        return None, field_errors(kind, fields) or {"payload": _told(str(error))}
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
    """Every fault of a value that a program built: msgspec does not check constructors."""
    faults = {}
    for field in fields_of(type(value)):
        try:
            # Written and read back: what JSON cannot hold (NaN, half a character) must not be found
            # out by the next reader.
            msgspec.json.decode(msgspec.json.encode(getattr(value, field.name)), type=field.type)
        except msgspec.ValidationError as error:
            faults[field.encode_name] = fault_text(error, field.type)
        except (TypeError, ValueError) as error:
            faults[field.encode_name] = f"cannot be stored as JSON: {error}"
    return naive_times(value) | faults


def naive_times(value: object, path: str = "") -> dict[str, str]:
    """Path → fault for every time without a zone, which nobody can place later, and every float
    that JSON would turn into null.
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
    return {name: fault for part, item in parts for name, fault in naive_times(item, part).items()}


_PLAIN = frozenset({str, int, bool, type(None)})


def _is_placed(value: object) -> bool:
    """Whether nothing in it is at fault: the same question without the paths, which nobody needs to
    hear of what is right.
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    # A message and its data, the two that come with every request, before all that has to be looked
    # at more closely.
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
    """The fields that can hold a time or a float by their type."""
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
    """The fields that take anything, where all others hold texts and whole numbers; None where some
    other type is among them.
    """
    bare = (
        msgspec.inspect.AnyType,
        msgspec.inspect.StrType,
        msgspec.inspect.IntType,
        msgspec.inspect.BoolType,
        msgspec.inspect.NoneType,
    )

    def is_bare(part: msgspec.inspect.Type) -> bool:
        match part:
            case msgspec.inspect.DictType(key_type=key, value_type=value):
                return is_bare(key) and is_bare(value)
            case msgspec.inspect.ListType(item_type=item):
                return is_bare(item)
            case msgspec.inspect.UnionType(types=types):
                return all(map(is_bare, types))
            case _:
                return isinstance(part, bare)

    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return _open_names(kind) if all(is_bare(field.type) for field in fields) else None


def comes_back(names: Sequence[str] | None, value: object, stored: object) -> bool:
    """Whether these fields come back from JSON as they went in.

    Then they hold no time and no float that JSON cannot: those come back as others.
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
        # Most, told from the others in passing: with each call of an API comes one.
        return {}
    if isinstance(actor, Actor) and not value_errors(actor):
        return {}
    return {"actor": "an Actor(user_id, roles) of strings"}


def is_usual_actor(actor: object) -> bool:
    """Whether nothing can be wrong with it: the quick check, made with each call of an API."""
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
    """The names of its fields, in Python and in JSON.

    Kept, because msgspec reads the annotations anew each time.
    """
    return [(field.name, field.encode_name) for field in fields_of(kind)]


def holds_times(kind: type[msgspec.Struct]) -> bool:
    """Whether a value of this type can hold a time: only then does it have to be searched for
    one.
    """
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


def fault_text(error: msgspec.ValidationError, kind: Any) -> str:
    """What is wrong, in a sentence; where a word was none of those that are known, with them."""
    text = _told(str(error))
    if not text.startswith("invalid enum value"):
        return text
    words = _words(msgspec.inspect.type_info(kind))
    return f"{text}; known: {', '.join(map(str, words))}" if words else text


def _words(part: msgspec.inspect.Type) -> tuple[object, ...]:
    """The words that a type knows, looked for in what it holds."""
    if isinstance(part, msgspec.inspect.LiteralType):
        return part.values
    inner = (
        part.types
        if isinstance(part, msgspec.inspect.UnionType)
        else (getattr(part, "item_type", None), *getattr(part, "item_types", ()))
    )
    return next((words for one in inner if one is not None and (words := _words(one))), ())


def _told(text: str) -> str:
    """The sentence of msgspec without its capital letter and its "- at `$…`" for a top-level
    value.
    """
    text = text[:1].lower() + text[1:]
    return text.replace(" - at `$`", "").replace("`", "'")
