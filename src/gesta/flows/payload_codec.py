"""Encodes payloads for the store: the JSON of the type, or the object itself for a flow that takes
any object.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from gesta.domain.codec import canonical
from gesta.flows.flow import AnyObject, Payload

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def encoder_of(kind: type[Payload]) -> Callable[[Any], bytes]:
    """The same bytes for the same content, in any order of keys."""
    return _encode_object if issubclass(kind, AnyObject) else canonical


@cache
def decoder_of(kind: type[Payload]) -> Callable[[bytes], Any]:
    """Decodes a stored payload; raises msgspec.ValidationError when it does not fit."""
    if issubclass(kind, AnyObject):
        return lambda raw: kind(_decode_object(raw))
    return msgspec.json.Decoder(kind).decode


def _encode_object(payload: AnyObject) -> bytes:
    return canonical(payload.fields)
