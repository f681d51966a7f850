"""A payload as it is stored, and back: the JSON of its type, or, where a flow takes any object,
that object itself.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from gesta.domain.codec import canonical
from gesta.flows.flow import AnyObject, Payload

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def encoder_of(kind: type[Payload]) -> Callable[[Any], bytes]:
    """The same bytes for the same content, whatever the order of its keys."""
    return _encode_object if issubclass(kind, AnyObject) else canonical


@cache
def decoder_of(kind: type[Payload]) -> Callable[[bytes], Any]:
    """The payload of stored JSON; raises msgspec.ValidationError when it does not fit."""
    if issubclass(kind, AnyObject):
        return lambda raw: kind(_decode_object(raw))
    return msgspec.json.Decoder(kind).decode


def _encode_object(payload: AnyObject) -> bytes:
    return canonical(payload.fields)
