"""The client with one more call: appends to many streams at a time, each with a verdict of its own.

`BatchAppend` is a call of the protocol that takes many requests; the client sends one request in
each. A request whose answer is lost is not repeated here: the caller does it, with the same event
ids and the same expected version, by which the server recognises what it has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import grpc
from google.protobuf import duration_pb2, empty_pb2
from kurrentdbclient import AsyncKurrentDBClient, NewEvent, StreamState
from kurrentdbclient.common import handle_rpc_error
from kurrentdbclient.exceptions import (
    KurrentDBClientError,
    MaximumAppendSizeExceededError,
    NodeIsNotLeaderError,
    ServiceUnavailableError,
)
from kurrentdbclient.protos.v1 import shared_pb2, streams_pb2, streams_pb2_grpc
from kurrentdbclient.unpack_error_status import unpack_status_details


class Written(NamedTuple):
    """All events of an append are on disk, perhaps by an earlier, equal append."""


class WrongVersion(NamedTuple):
    """`actual`: how many events the stream has."""

    actual: int


class Deleted(NamedTuple):
    """The stream was deleted for good."""


Answer = Written | WrongVersion | Deleted


class Write(NamedTuple):
    """Events for one stream, which has `expected` events."""

    stream: str
    expected: int
    events: Sequence[NewEvent]


def state_of(expected: int) -> int | StreamState:
    """The client counts from 0, and calls a stream without events NO_STREAM."""
    return expected - 1 if expected else StreamState.NO_STREAM


#: A connection that failed is tried again soon. Without a pool of its own, a new channel would wait
#: as long as the one that failed.
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class Client(AsyncKurrentDBClient):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.grpc_options += _CHANNEL

    async def append_many(self, writes: Sequence[Write], timeout_seconds: float) -> list[Answer]:
        """Each whole or not at all, in this order, in one call."""
        await self.connect()
        connection = self.connection
        channel = connection._grpc_channel  # noqa: SLF001 -- the client has no call for this
        stub = streams_pb2_grpc.StreamsStub(channel)  # type: ignore[no-untyped-call]
        answers: dict[int, Answer] = {}
        try:
            call = stub.BatchAppend(
                iter([_request(n, write, timeout_seconds) for n, write in enumerate(writes)]),
                timeout=timeout_seconds,
                metadata=(*self._call_metadata, ("requires-leader", "true")),
                credentials=self._call_credentials,
            )
            async for response in call:
                answers[UUID(response.correlation_id.string).int] = _answer(response)
                if len(answers) == len(writes):
                    call.cancel()
                    break
        except grpc.RpcError as error:
            failure = handle_rpc_error(error)
            if isinstance(failure, ServiceUnavailableError | NodeIsNotLeaderError):
                # Without this, the channel would wait before it tries to connect again.
                await self.reconnect(connection_id=connection.connection_id)
            raise failure from None
        if len(answers) < len(writes):
            raise ServiceUnavailableError("the server ended the call without an answer")
        return [answers[number] for number in range(len(writes))]


def _request(number: int, write: Write, timeout_seconds: float) -> streams_pb2.BatchAppendReq:
    options = streams_pb2.BatchAppendReq.Options(
        stream_identifier=shared_pb2.StreamIdentifier(stream_name=write.stream.encode()),
        deadline=duration_pb2.Duration(seconds=int(timeout_seconds)),
    )
    if write.expected:
        options.stream_position = write.expected - 1
    else:
        options.no_stream.CopyFrom(empty_pb2.Empty())
    return streams_pb2.BatchAppendReq(
        correlation_id=shared_pb2.UUID(string=str(UUID(int=number))),
        options=options,
        proposed_messages=[
            streams_pb2.BatchAppendReq.ProposedMessage(
                id=shared_pb2.UUID(string=str(event.id)),
                metadata={"type": event.type, "content-type": event.content_type},
                custom_metadata=event.metadata,
                data=event.data,
            )
            for event in write.events
        ],
        is_final=True,
    )


def _answer(response: streams_pb2.BatchAppendResp) -> Answer:
    if response.WhichOneof("result") == "success":
        return Written()
    status: Any = response.error
    for detail in unpack_status_details(status):
        if isinstance(detail, shared_pb2.WrongExpectedVersion):
            is_there = detail.WhichOneof("current_stream_revision_option") != "current_no_stream"
            return WrongVersion(detail.current_stream_revision + 1 if is_there else 0)
        if isinstance(detail, shared_pb2.StreamDeleted):
            return Deleted()
        if isinstance(detail, shared_pb2.MaximumAppendSizeExceeded):
            raise MaximumAppendSizeExceededError(f"at most {detail.maxAppendSize} bytes")
    raise KurrentDBClientError(f"the server refused an append: {response.error.message}")
