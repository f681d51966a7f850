"""The first event of a request, with the claim on its key."""

from typing import Any

import msgspec
from msgspec.structs import replace

from gesta.api_types.requests import SubmitWarning
from gesta.domain.codec import decode_meta, encode, event_types
from gesta.domain.commands import Command, Create, Rules
from gesta.domain.events import Meta
from gesta.domain.ids import event_id, id_text
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.flows.flow import Flow
from gesta.intake.submit_options import Options
from gesta.ports.event_store import Append, Claim, Known, NewEvent
from gesta.runtime.redaction import scrubbed_name
from gesta.security.keyed_digests import KeyedDigests

#: The first operation of the lifecycle, without facts.
NO_OPENING: tuple[str, dict[str, Any]] = ("", {})


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A validated request that is not stored yet. Its personal fields are still in clear."""

    flow: Flow
    body: bytes
    options: Options
    at: int
    raw_id: bytes
    request_id: str
    #: The data subject, where the payload names one.
    about: str | None = None
    #: The caller chose the id, which is also its key.
    is_own: bool = False
    warnings: tuple[SubmitWarning, ...] = ()
    #: The first operation and its facts, if the flow defines them.
    opening: tuple[str, dict[str, Any]] | None = None
    #: The claim on the id of the inbound event that leads to the request.
    event: Claim | None = None


def first_append(draft: Draft, stored: bytes, identity: KeyedDigests) -> Append:
    """What to append for a draft, with its payload as it is `stored`."""
    flow, options, raw_id, request_id = draft.flow, draft.options, draft.raw_id, draft.request_id
    name, tenant, key = flow.name, options.tenant, options.key
    ttl = flow.ttl_seconds if options.ttl is None else options.ttl.total_seconds()
    deliver_at, (operation, facts) = options.deliver_at, draft.opening or NO_OPENING
    # By position, as for all values that every request needs: keywords would cost more than the
    # value itself.
    command = Create(
        request_id,
        name,
        stored,
        draft.at,
        None if key is None else scrubbed_name(key),
        None if deliver_at is None else round(deliver_at.timestamp() * 1000),
        None if ttl is None else round(ttl * 1000),
        options.priority,
        options.test,
        flow.is_external,
        draft.is_own and key == request_id,
        operation,
        facts,
    )
    correlation_id, causation_id = options.correlation_id, options.causation_id
    meta = Meta(
        tenant,
        name,
        request_id,
        draft.at,
        request_id if correlation_id is None else scrubbed_name(correlation_id),
        request_id if causation_id is None else scrubbed_name(causation_id),
        options.source,
        options.actor,
    )
    (event,) = flow.lifecycle.decide(None, command, flow.rules)
    new = NewEvent(
        event_id(raw_id, 0),
        event_types(name).name_of[type(event)],
        encode(event),
        encode(meta),
        Known(event, meta),
    )
    claim = None if key is None else _claim(draft, key, identity)
    return Append(request_stream(name, tenant, request_id), 0, (new,), claim, draft.event)


def with_end(append: Append, command: Command, at_ms: int) -> Append:
    """The same request with its end in the same append, so that it never has a job."""
    (first,) = append.events
    meta = decode_meta(first.meta)
    types, lifecycle = event_types(meta.flow), lifecycle_of(meta.flow)
    created = types.decode(first.type, first.data)
    assert created is not None
    state = lifecycle.evolve(None, created, meta)
    (event,) = lifecycle.decide(state, command, Rules())
    at = replace(meta, occurred_at=at_ms, causation_id=meta.request_id)
    end = NewEvent(
        event_id(first.id, 1),
        types.name_of[type(event)],
        encode(event),
        encode(at),
        Known(event, at, lifecycle.evolve(state, event, at)),
    )
    begun = replace(first, known=Known(created, meta, state))
    return replace(append, events=(begun, end))


def ends_of(append: Append) -> tuple[State, State]:
    """The states after the two events of an append `with_end`."""
    created, ended = (one.known for one in append.events)
    assert created is not None
    assert created.after is not None
    assert ended is not None
    assert ended.after is not None
    return created.after, ended.after


def _claim(draft: Draft, key: str, identity: KeyedDigests) -> Claim:
    """The claim on the caller's key. Its content is the body in clear: encrypting the same text
    twice gives different bytes.
    """
    flow, options = draft.flow.name, draft.options
    if draft.is_own:
        # One claim for all tenants and flows. Each submit claims under a new id, so only an append
        # that is repeated counts as the same one.
        content = identity.content(f"{options.tenant}\0{flow}\0".encode() + draft.body)
        return Claim(identity.name("", "", key), id_text(draft.raw_id), content)
    name = identity.name_of(options.tenant, flow, key, test=options.test)
    return Claim(name, draft.request_id, identity.content(draft.body))
