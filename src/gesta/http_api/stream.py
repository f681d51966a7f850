"""/v1/stream: events of the tenant's requests as they happen (server-sent events).

Last-Event-ID continues a broken stream.
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
#: Keeps proxies from closing the connection, and detects callers who are gone.
HEARTBEAT_SECONDS = 15.0
#: Open streams of one process, and of one tenant: each reads the log, and one tenant must not take
#: all of them.
STREAMS_MAX, STREAMS_OF_TENANT_MAX = 200, 100
PURPOSE = "stream/"


class Following(Asked, frozen=True):
    #: A flow, or `kind.*` for all flows of a kind; all flows by default.
    flow: str = "*"
    request: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{REQUEST_ID.pattern}$"})]
        | None
    ) = None


async def follow(call: Call) -> Stream:
    """Events from now on, or after the event that Last-Event-ID names."""
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
        detail = (
            f"{streams[call.tenant]} streams of this tenant are open in this process; close one, or"
            " try again later"
        )
        raise Problem(503, "too_many_streams", detail, headers={"Retry-After": "5"})
    return Stream(_parts(call, asked, position))


async def _parts(call: Call, asked: Following, position: int) -> AsyncIterator[bytes]:
    pipeline, events = call.pipeline, call.pipeline.environment.stores.events
    call.web.streams[call.tenant] += 1
    try:
        # The position first: a caller who loses the connection before the first event misses
        # nothing.
        yield b"retry: 2000\n" + _id(call, position) + b"\n"
        sent_at = pipeline.runtime.monotonic()
        is_local = call.web.grant is not None
        # A key that is revoked or expires ends the stream.
        while not pipeline.is_stopping and (
            is_local or await pipeline.keys.is_still_valid(call.grant)
        ):
            batch = await events.follow(position, BATCH)
            lines = b"".join(
                [_event(call, one) for one in batch if _is_meant(one, asked, call.tenant)]
            )
            position = batch[-1].position if batch else position
            if not batch:
                await events.changed(HEARTBEAT_SECONDS)
            if not lines and pipeline.runtime.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                # An id without data only moves the position.
                lines = _id(call, position) + b"\n"
            if lines:
                sent_at = pipeline.runtime.monotonic()
                yield lines
    finally:
        call.web.streams[call.tenant] -= 1


def _is_meant(recorded: Recorded, asked: Following, tenant: str) -> bool:
    try:
        meta = decode_meta(recorded.meta) if recorded.known is None else recorded.known.meta
    except ValueError:
        # The projector quarantines it.
        return False
    if meta.tenant != tenant or meta.flow == CONFIG:
        return False
    return covers(asked.flow, meta.flow) and asked.request in (None, meta.request_id)


def _event(call: Call, recorded: Recorded) -> bytes:
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
        "Stream events",
        "requests",
        query=Following,
        answer=StreamEvent,
        gives="text/event-stream",
        headers={"Last-Event-ID": "The id of the last event seen"},
    )
]
