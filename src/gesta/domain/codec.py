"""Events and metadata to bytes and back, versioned, upcast on read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from gesta.domain.events import EVENTS, Created, Event, Failed, Meta, Sent, SentLate, Updated

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
#: The same bytes for the same content, whatever the order of its keys.
canonical = msgspec.json.Encoder(order="deterministic").encode

_meta_decoder = msgspec.json.Decoder(Meta)
decode_meta = _meta_decoder.decode

_decoders = {kind: msgspec.json.Decoder(kind) for kind in EVENTS}

#: Event names that a flow keeps from the contract it took over. Everything else is called after its
#: class.
_RENAMED: dict[str, dict[type[Event], str]] = {
    "notification.slack": {
        Created: "MessageRequestCreated",
        Updated: "MessageRequestUpdated",
        Sent: "MessageSent",
        SentLate: "MessageSentLate",
        Failed: "MessageFailed",
    },
}
_DEFAULT_NAMES: dict[type[Event], str] = {Created: "RequestCreated", Updated: "RequestUpdated"}

#: The contract version each event is written in; older ones are lifted on read by `UPCASTERS`,
#: newer ones are skipped.
VERSIONS: dict[type[Event], int] = dict.fromkeys(EVENTS, 1)
#: (event, version) → a function from that version's fields to the next version's.
UPCASTERS: dict[tuple[type[Event], int], Callable[[dict[str, object]], dict[str, object]]] = {}


class EventTypes:
    """The stored type names of one flow, both ways."""

    __slots__ = ("_decoders", "_kinds", "name_of")

    def __init__(self, flow: str) -> None:
        renamed = _RENAMED.get(flow, {})
        names = {
            kind: f"{flow}.{renamed.get(kind) or _DEFAULT_NAMES.get(kind) or kind.__name__}"
            for kind in EVENTS
        }
        #: Class → stored name, a plain dict because it is asked once per event.
        self.name_of = {kind: f"{name}.v{VERSIONS[kind]}" for kind, name in names.items()}
        self._decoders = {self.name_of[kind]: _decoders[kind] for kind in EVENTS}
        self._kinds = {name: kind for kind, name in names.items()}

    def decode(self, type_name: str, data: bytes) -> Event | None:
        """The event, or None for a type this version of the code does not know: such an event is
        skipped, never fatal.
        """
        decoder = self._decoders.get(type_name)
        return self._lift(type_name, data) if decoder is None else decoder.decode(data)

    def _lift(self, type_name: str, data: bytes) -> Event | None:
        name, _, version = type_name.rpartition(".v")
        kind = self._kinds.get(name)
        if kind is None or not version.isdecimal() or not 1 <= int(version) <= VERSIONS[kind]:
            return None
        fields = msgspec.json.decode(data)
        for step in range(int(version), VERSIONS[kind]):
            fields = UPCASTERS[kind, step](fields)
        return _decoders[kind].decode(_encoder.encode(fields))


@cache
def event_types(flow: str) -> EventTypes:
    """The type names of a flow, made once."""
    return EventTypes(flow)
