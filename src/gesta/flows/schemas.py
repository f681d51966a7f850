"""JSON schemas of payloads and config, with secret and personal fields marked."""

from collections.abc import Collection, Iterator
from typing import Any, get_args

import msgspec

from gesta.flows.flow import AnyObject, ConfigBody, Payload, secret_fields
from gesta.flows.personal_fields import personal_fields

SECRET = {"writeOnly": True}
#: Personal data, stored encrypted.
PERSONAL = {"x-personal": True}
_REFS = "#/$defs/{name}"


def config_schema(kind: type[ConfigBody]) -> dict[str, Any]:
    """Secret fields are `writeOnly`."""
    return _schema(kind, {kind: _stored_names(kind, secret_fields(kind))}, SECRET)


def payload_schema(kind: type[Payload]) -> dict[str, Any]:
    """Fields that are personal, or contain something personal, are `x-personal`."""
    if issubclass(kind, AnyObject):
        return {"type": "object"}
    return _schema(
        kind,
        {one: _stored_names(one, personal_fields(one)) for one in _structs(kind, set())},
        PERSONAL,
    )


def _schema(
    root: type[msgspec.Struct], marked: dict[type[msgspec.Struct], set[str]], mark: dict[str, Any]
) -> dict[str, Any]:
    kinds = list(dict.fromkeys([root, *marked]))
    try:
        refs, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    except TypeError:
        # A type that JSON Schema cannot express.
        return {"type": "object"}
    for kind, ref in zip(kinds, refs, strict=True):
        properties = components[ref["$ref"].rpartition("/")[2]].get("properties", {})
        for name in marked.get(kind, ()):
            properties[name] |= mark
    return {**refs[0], "$defs": components}


def _stored_names(kind: type[msgspec.Struct], names: Collection[str]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.name in names}


def _structs(hint: Any, seen: set[Any]) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in seen:
            return
        seen.add(hint)
        yield hint
        for field in msgspec.structs.fields(hint):
            yield from _structs(field.type, seen)
    for part in get_args(hint):
        yield from _structs(part, seen)
