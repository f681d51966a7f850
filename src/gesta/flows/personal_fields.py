"""Finds the personal parts of a payload: a plan for each payload type, applied to the stored JSON.

A part is encrypted in place, also inside structs, lists and dicts. Where the type leaves a value
open, the whole value is encrypted.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from gesta.flows.flow import PersonalMark

#: (JSON of a part, its path) → the JSON that replaces it.
Replace = Callable[[bytes, str], bytes]
#: A field or property of this name is the data subject of a payload; see `subject_name`.
SUBJECT = "subject"
#: A property with the data subject, where `subject` is something else, like the subject of an
#: e-mail.
ABOUT = "about"

decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Plan(Protocol):
    """The personal parts of values of one type."""

    def replace(self, raw: bytes, path: str, by: Replace) -> bytes:
        """The JSON with every personal part replaced; all other bytes stay."""


#: Empty values are not personal.
_EMPTY = frozenset({b"null", b'""', b"[]", b"{}"})


class Whole:
    """The value itself, unless it is empty."""

    def replace(self, raw: bytes, path: str, by: Replace) -> bytes:
        return raw if raw in _EMPTY else by(raw, path)


WHOLE = Whole()


class Fields:
    def __init__(self) -> None:
        self.parts: dict[str, Plan] = {}

    def replace(self, raw: bytes, path: str, by: Replace) -> bytes:
        if not raw.startswith(b"{"):
            return WHOLE.replace(raw, path, by)
        return over_object(raw, path, lambda name, part, where: self._part(name, part, where, by))

    def _part(self, name: str, part: bytes, path: str, by: Replace) -> bytes:
        plan = self.parts.get(name)
        return part if plan is None else plan.replace(part, path, by)


class Values:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def replace(self, raw: bytes, path: str, by: Replace) -> bytes:
        if not raw.startswith(b"{"):
            return WHOLE.replace(raw, path, by)
        return over_object(raw, path, lambda _, part, where: self._plan.replace(part, where, by))


class Items:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def replace(self, raw: bytes, path: str, by: Replace) -> bytes:
        if not raw.startswith(b"["):
            return WHOLE.replace(raw, path, by)
        return over_array(raw, path, lambda part, where: self._plan.replace(part, where, by))


def over_object(raw: bytes, path: str, by: Callable[[str, bytes, str], bytes]) -> bytes:
    """An object's JSON with `by(name, value, path)` in place of each value."""
    parts = decode_object(raw)
    return _encode(
        {
            name: msgspec.Raw(by(name, bytes(part), f"{path}/{_step(name)}"))
            for name, part in parts.items()
        }
    )


def over_array(raw: bytes, path: str, by: Replace) -> bytes:
    """An array's JSON with `by(item, path)` in place of each item."""
    return _encode(
        [
            msgspec.Raw(by(bytes(part), f"{path}/{number}"))
            for number, part in enumerate(decode_array(raw))
        ]
    )


def _step(name: str) -> str:
    """Escapes a name for a path, as in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


@cache
def plan_of(kind: type[msgspec.Struct]) -> Plan | None:
    """None when nothing is personal."""
    plan = _plan(kind, {})
    subject = next((field for field in msgspec.structs.fields(kind) if field.name == SUBJECT), None)
    if isinstance(plan, Fields) and subject is not None:
        # The data subject is personal, too, even unmarked.
        plan.parts[subject.encode_name] = WHOLE
    return plan


@cache
def subject_name(kind: type[msgspec.Struct]) -> str | None:
    """The attribute with the data subject of payloads of this type. A marked `subject`, as of an
    e-mail, is not one.
    """
    field = next((field for field in msgspec.structs.fields(kind) if field.name == SUBJECT), None)
    if field is None:
        return SUBJECT if isinstance(getattr(kind, SUBJECT, None), property) else None
    if not _is_personal(field.type, set()):
        return SUBJECT
    return ABOUT if isinstance(getattr(kind, ABOUT, None), property) else None


@cache
def places_apart(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Paths of the fields that are about other people than the data subject."""
    return tuple(
        f"/{_step(field.encode_name)}"
        for field in msgspec.structs.fields(kind)
        if _is_apart(field.type)
    )


@cache
def personal_fields(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The attributes that are personal or contain something personal."""
    marked = frozenset(
        field.name for field in msgspec.structs.fields(kind) if _is_personal(field.type, set())
    )
    has_subject = bool(marked) and SUBJECT in kind.__struct_fields__
    return marked | {SUBJECT} if has_subject else marked


def personal_texts(payload: object) -> list[str]:
    """Every text and number in the personal fields of a payload."""
    if not isinstance(payload, msgspec.Struct):
        return []
    return [
        text for name in personal_fields(type(payload)) for text in _texts(getattr(payload, name))
    ]


def _texts(value: object) -> Iterator[str]:
    """Every text and number in it as its JSON shows them. Names of fields are not personal."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _texts(getattr(value, name))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        # A date, a number, an id. Whatever it is, an outcome is not lost for it.
        with suppress(TypeError, ValueError):
            yield str(msgspec.to_builtins(value))


def _plan(hint: Any, structs: dict[type, Fields]) -> Plan | None:
    hint = _resolved(hint)
    if not _is_personal(hint, set()):
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return WHOLE if _is_marked(hint) else _plan(arguments[0], structs)
    if origin in (Union, UnionType):
        some = [one for one in arguments if one is not NoneType]
        return _plan(some[0], structs) if len(some) == 1 else WHOLE
    if _is_struct(hint) and not hint.__struct_config__.array_like:
        return _fields(hint, structs)
    inner: Plan | None = None
    if (
        isinstance(origin, type)
        and issubclass(origin, Mapping)
        and len(arguments) == 2
        and not _is_personal(arguments[0], set())
    ):
        inner = _plan(arguments[1], structs)
        return WHOLE if inner is None else Values(inner)
    is_list = len(arguments) == 1 or (len(arguments) == 2 and arguments[1] is Ellipsis)
    if (
        isinstance(origin, type)
        and hasattr(origin, "__iter__")
        and not _is_struct(origin)
        and is_list
    ):
        inner = _plan(arguments[0], structs)
    return WHOLE if inner is None else Items(inner)


def _fields(kind: type[msgspec.Struct], structs: dict[type, Fields]) -> Fields:
    """A type may contain itself, so its plan is stored before it is complete."""
    if kind not in structs:
        fields = structs[kind] = Fields()
        for field in msgspec.structs.fields(kind):
            plan = _plan(field.type, structs)
            if plan is not None:
                fields.parts[field.encode_name] = plan
    return structs[kind]


def _is_personal(hint: Any, seen: set[object]) -> bool:
    hint = _resolved(hint)
    if get_origin(hint) is not None:
        return _is_marked(hint) or any(
            _is_personal(part, seen) for part in (get_origin(hint), *get_args(hint))
        )
    if not isinstance(hint, type) or hint in seen:
        return False
    seen.add(hint)
    return any(_is_personal(part, seen) for part in _hints(hint))


def _is_marked(hint: Any) -> bool:
    return any(isinstance(mark, PersonalMark) for mark in getattr(hint, "__metadata__", ()))


def _is_apart(hint: Any) -> bool:
    hint = _resolved(hint)
    marks = getattr(hint, "__metadata__", ())
    return any(isinstance(mark, PersonalMark) and mark.apart for mark in marks) or any(
        map(_is_apart, get_args(hint))
    )


def _is_struct(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _resolved(hint: Any) -> Any:
    """Resolves aliases (`type Email = …`, NewType)."""
    while (
        named := getattr(hint, "__value__", None) or getattr(hint, "__supertype__", None)
    ) is not None:
        hint = named
    return hint


def _hints(kind: type) -> Iterator[Any]:
    """The field types of every kind of class that a payload may contain."""
    if issubclass(kind, msgspec.Struct):
        yield from (field.type for field in msgspec.structs.fields(kind))
    elif (
        dataclasses.is_dataclass(kind)
        or is_typeddict(kind)
        or hasattr(kind, "_fields")
        or hasattr(kind, "__attrs_attrs__")
    ):
        yield from get_type_hints(kind, include_extras=True).values()
