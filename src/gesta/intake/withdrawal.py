"""Requests that are refused after their caller has gone: recorded with their end in one append."""

from msgspec.structs import replace

from gesta.domain.codec import decode_meta, encode, event_types
from gesta.domain.commands import Rules, Withdraw
from gesta.domain.ids import event_id
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.ports.event_store import Append, Known, NewEvent


def withdrawn(append: Append, command: Withdraw, now_ms: int) -> Append:
    """The same request with its end in the same append. It claims no key."""
    (first,) = append.events
    meta = decode_meta(first.meta)
    types, lifecycle = event_types(meta.flow), lifecycle_of(meta.flow)
    created = types.decode(first.type, first.data)
    assert created is not None
    state: State = lifecycle.evolve(None, created, meta)
    (event,) = lifecycle.decide(state, command, Rules())
    at = replace(meta, occurred_at=now_ms, causation_id=meta.request_id)
    end = NewEvent(
        event_id(first.id, 1),
        types.name_of[type(event)],
        encode(event),
        encode(at),
        Known(event, at, lifecycle.evolve(state, event, at)),
    )
    return Append(append.stream, 0, (replace(first, known=Known(created, meta, state)), end))


def ends_of(append: Append) -> tuple[State, State]:
    """The state after each of the two events of a withdrawn request."""
    created, ended = (one.known for one in append.events)
    assert created is not None
    assert created.after is not None
    assert ended is not None
    assert ended.after is not None
    return created.after, ended.after
