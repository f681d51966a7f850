"""Encodes events and metadata, and decodes them, lifting old versions of events on read."""

from collections.abc import Callable
from functools import cache

import msgspec
from msgspec.structs import replace

from gesta.domain.events import Event, Meta
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
#: The same bytes for the same content, whatever the order of its keys.
canonical = msgspec.json.Encoder(order="deterministic").encode

_meta_decoder = msgspec.json.Decoder(Meta)
decode_meta = _meta_decoder.decode

_state_decoder = msgspec.json.Decoder(State)

#: The contract version in which each event is written, 1 unless listed. `UPCASTERS` lift older
#: versions on read; newer ones are skipped.
VERSIONS: dict[type[Event], int] = {}
#: (event, version) → a function from that version's fields to the next version's.
UPCASTERS: dict[tuple[type[Event], int], Callable[[dict[str, object]], dict[str, object]]] = {}


def decode_state(data: bytes | str) -> State:
    """A stored state."""
    state = _state_decoder.decode(data)
    facts = lifecycle_of(state.flow).facts
    return state if facts is None else replace(state, facts=facts(state.facts, state.operation))


class EventTypes:
    """The stored type names of one flow, both ways."""

    __slots__ = ("_decoders", "_kinds", "name_of")

    def __init__(self, flow: str) -> None:
        names = {kind: f"{flow}.{name}" for kind, name in lifecycle_of(flow).event_names.items()}
        #: Class → stored name, a plain dict because it is used once per event.
        self.name_of = {kind: f"{name}.v{VERSIONS.get(kind, 1)}" for kind, name in names.items()}
        self._decoders = {name: _decoder(kind) for kind, name in self.name_of.items()}
        self._kinds = {name: kind for kind, name in names.items()}

    def decode(self, type_name: str, data: bytes) -> Event | None:
        """The event; None for a type that this version does not know, which callers skip."""
        decoder = self._decoders.get(type_name)
        return self._lift(type_name, data) if decoder is None else decoder.decode(data)

    def _lift(self, type_name: str, data: bytes) -> Event | None:
        name, _, version = type_name.rpartition(".v")
        kind = self._kinds.get(name)
        if kind is None or not version.isdecimal():
            return None
        newest = VERSIONS.get(kind, 1)
        if not 1 <= int(version) <= newest:
            return None
        fields = msgspec.json.decode(data)
        for step in range(int(version), newest):
            fields = UPCASTERS[kind, step](fields)
        return _decoder(kind).decode(_encoder.encode(fields))


@cache
def _decoder(kind: type[Event]) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(kind)


@cache
def event_types(flow: str) -> EventTypes:
    return EventTypes(flow)
