"""Values of a handler as JSON, and back: those of pydantic by its own rules, others by msgspec."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

#: Their objects exist while a call is answered, and cannot be stored.
_FRAMEWORKS = ("fastapi", "starlette", "litestar")
#: pydantic writes them as asterisks.
_SECRETS = ("Secret", "SecretStr", "SecretBytes")
Test = Callable[[Any], bool]


class Kind:
    """The type of a parameter."""

    def __init__(self, hint: Any, *, by_pydantic: bool = False) -> None:
        """`by_pydantic`: the framework parses calls with pydantic, whatever the type."""
        self._hint = hint
        # pydantic writes bytes as text, which not all are.
        plain = mentions(hint, _is_bytes) or not by_pydantic
        self._adapter = None if plain and not mentions(hint, is_pydantic) else _adapter(hint)

    @property
    def is_collection(self) -> bool:
        origin = get_origin(self._hint) or self._hint
        return isinstance(origin, type) and (
            issubclass(origin, Collection) and not issubclass(origin, (str, bytes, dict))
        )

    def stored(self, value: Any) -> Any:
        """A value that the framework parsed, as JSON types. Raises ValueError, TypeError."""
        if self._adapter is None:
            return encode_value(value)
        # Not as answers are written: by the names of the fields, and only what can be read again.
        return _to_json(value, by_alias=False, round_trip=True)

    def restored(self, stored: Any) -> Any:
        """The value of JSON that `stored` has made. Raises ValueError, TypeError."""
        if self._adapter is None:
            return self._converted(stored)
        return self._adapter.validate_python(stored, by_alias=False, by_name=True)

    def read(self, sent: Any) -> Any:
        """A value that another service wrote. Raises ValueError, TypeError."""
        if self._adapter is None:
            return self._converted(sent)
        return self._adapter.validate_python(sent)

    def _converted(self, found: Any) -> Any:
        return found if self._hint is Any else msgspec.convert(found, self._hint, strict=False)


def mentions(hint: Any, test: Test, seen: frozenset[int] = frozenset()) -> bool:
    """Whether the test holds for a type, or for one that it is made of."""
    if id(hint) in seen:
        return False
    if test(hint):
        return True
    seen |= {id(hint)}
    return any(mentions(one, test, seen) for one in (*get_args(hint), *_parts(hint)))


def _parts(hint: Any) -> list[Any]:
    if hasattr(hint, "model_fields"):
        return [one.annotation for one in hint.model_fields.values()]
    is_struct = isinstance(hint, type) and (
        dataclasses.is_dataclass(hint)
        or issubclass(hint, msgspec.Struct)
        # TypedDict and NamedTuple.
        or hasattr(hint, "__required_keys__")
        or hasattr(hint, "_fields")
    )
    return list(get_type_hints(hint).values()) if is_struct else []


def _is_bytes(hint: Any) -> bool:
    return hint is bytes


def is_pydantic(hint: Any) -> bool:
    return hasattr(hint, "__get_pydantic_core_schema__") or hasattr(
        hint, "__pydantic_core_schema__"
    )


def is_secret(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    name, module = getattr(kind, "__name__", ""), getattr(kind, "__module__", "")
    return name in _SECRETS and str(module).partition(".")[0] == "pydantic"


def is_of_framework(hint: Any) -> bool:
    """Whether its objects belong to the call: uploads, background tasks, responses, connections."""
    return isinstance(hint, type) and hint.__module__.partition(".")[0] in _FRAMEWORKS


def encode_value(value: Any) -> Any:
    """The value as JSON types. Raises TypeError, ValueError."""
    return msgspec.to_builtins(value, enc_hook=_encode_foreign, str_keys=True)


def encode_result(value: Any) -> bytes:
    return msgspec.json.encode(encode_value(value))


def _encode_foreign(value: Any) -> Any:
    if is_pydantic(type(value)):
        return _to_json(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _to_json(value: Any, **options: bool) -> Any:
    from pydantic_core import to_jsonable_python

    # NaN stays one, and is refused: as null it would be another value.
    return to_jsonable_python(value, inf_nan_mode="constants", **options)  # type: ignore[arg-type]


def _adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(hint)
