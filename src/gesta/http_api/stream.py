"""/v1/stream: what happens to the tenant's requests, as it happens (server-sent events).

Last-Event-ID goes on where a stream ended.
"""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from gesta.admin.representations import event_representation
from gesta.api_types.requests import StreamEvent
from gesta.api_types.structs import Asked
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.ids import REQUEST_ID, covers
from gesta.domain.lifecycles import lifecycle_of
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.route import Call, Route, Stream
from gesta.ports.event_store import Recorded
from gesta.projector.batch_fold import CONFIG

BATCH = 200
#: A sign of life, so that proxies keep the line open and a caller who is gone is noticed.
HEARTBEAT_SECONDS = 15.0
#: Streams of one process at a time, and of one tenant: each reads the log by itself, and a crowd of
#: one must not keep the others out.
STREAMS_MAX, STREAMS_OF_TENANT_MAX = 200, 100
PURPOSE = "stream/"


class Following(Asked, frozen=True):
    #: A flow, `kind.*` for all of a kind; all flows unless named.
    flow: str = "*"
    request: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{REQUEST_ID.pattern}$"})]
        | None
    ) = None


async def follow(call: Call) -> Stream:
    """Everything that happens from now on, or from behind the event that Last-Event-ID names."""
    asked: Following = call.query
    if asked.request is not None and not REQUEST_ID.fullmatch(asked.request):
        raise invalid({"request": "must be the id of a request"})
    last, events = call.header("last-event-id"), call.pipeline.environment.stores.events
    position = (
        await events.end()
        if last is None
        else call.pipeline.cursors.open(last, PURPOSE + call.tenant)
    )
    streams = call.web.streams
    if streams.total() >= STREAMS_MAX or streams[call.tenant] >= STREAMS_OF_TENANT_MAX:
        told = (
            f"{streams[call.tenant]} streams of this tenant are open in this process; close one, or"
            " come back later"
        )
        raise Problem(503, "too_many_streams", told, headers={"Retry-After": "5"})
    return Stream(_parts(call, asked, position))


async def _parts(call: Call, asked: Following, position: int) -> AsyncIterator[bytes]:
    pipeline, events = call.pipeline, call.pipeline.environment.stores.events
    call.web.streams[call.tenant] += 1
    try:
        # The place at once, so that whoever loses the connection before the first event misses
        # nothing either.
        yield b"retry: 2000\n" + _id(call, position) + b"\n"
        told_at = pipeline.runtime.monotonic()
        is_local = call.web.grant is not None
        # A key that was revoked or has expired meanwhile hears nothing more.
        while not pipeline.is_stopping and (
            is_local or await pipeline.keys.is_still_valid(call.grant)
        ):
            batch = await events.follow(position, BATCH)
            told = b"".join(
                [_told(call, one) for one in batch if _is_meant(one, asked, call.tenant)]
            )
            position = batch[-1].position if batch else position
            if not batch:
                await events.changed(HEARTBEAT_SECONDS)
            if not told and pipeline.runtime.monotonic() - told_at >= HEARTBEAT_SECONDS:
                # An id without data moves the place to go on from and tells nobody anything.
                told = _id(call, position) + b"\n"
            if told:
                told_at = pipeline.runtime.monotonic()
                yield told
    finally:
        call.web.streams[call.tenant] -= 1


def _is_meant(recorded: Recorded, asked: Following, tenant: str) -> bool:
    try:
        meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
    except ValueError:
        # The projector meets it, too, and parks it.
        return False
    if meta.tenant != tenant or meta.flow == CONFIG:
        return False
    return covers(asked.flow, meta.flow) and asked.request in (None, meta.request_id)


def _told(call: Call, recorded: Recorded) -> bytes:
    meta = decode_meta(recorded.meta)
    try:
        event = event_types(meta.flow).decode(recorded.type, recorded.data)
    except ValueError:
        return b""
    shown = event_representation((recorded.type, event, meta), recorded.version)
    data = StreamEvent(**msgspec.structs.asdict(shown), request_id=meta.request_id, flow=meta.flow)
    word = lifecycle_of(meta.flow).word_of(event) or "changed"
    return (
        _id(call, recorded.position)
        + b"event: "
        + word.encode()
        + b"\ndata: "
        + msgspec.json.encode(data)
        + b"\n\n"
    )


def _id(call: Call, position: int) -> bytes:
    return b"id: " + call.pipeline.cursors.encrypt(position, PURPOSE + call.tenant).encode() + b"\n"


ROUTES = [
    Route(
        "GET",
        "/v1/stream",
        follow,
        "read",
        "What happens, as it happens",
        "requests",
        query=Following,
        answer=StreamEvent,
        gives="text/event-stream",
        headers={"Last-Event-ID": "The id of the last event that was seen"},
    )
]
