"""The gRPC service of the double, on the stubs that come with `kurrentdbclient`."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf import any_pb2, empty_pb2
from kurrentdbclient.protos.google.rpc import code_pb2
from kurrentdbclient.protos.v1 import shared_pb2, status_pb2, streams_pb2, streams_pb2_grpc

from gesta.testing.kurrentdb_double.log import (
    MAX_APPEND_BYTES,
    Expected,
    Log,
    Proposed,
    Record,
    Written,
    WrongVersion,
)

#: As many events may be in an answer as the real server allows.
_OPTIONS = (("grpc.max_receive_message_length", 32 * 1024 * 1024), ("grpc.so_reuseport", 0))


class KurrentDBDouble:
    """`async with KurrentDBDouble() as double:` gives `double.url`."""

    def __init__(self, folder: Path | None = None, *, port: int = 0) -> None:
        """Without a folder it makes one and removes it at the end. Port 0: any free one."""
        self._is_own = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="gesta-kurrentdb-double-"))
        self.port = port
        self._log: Log | None = None
        self._server: grpc.aio.Server | None = None

    @property
    def url(self) -> str:
        return f"kurrentdb://127.0.0.1:{self.port}?Tls=false"

    async def __aenter__(self) -> Self:
        self._log = Log(self._folder)
        self._log.write_statistics()
        self._server = grpc.aio.server(options=_OPTIONS)
        streams_pb2_grpc.add_StreamsServicer_to_server(  # type: ignore[no-untyped-call]
            _Streams(self._log), self._server
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._log is not None
        await self._server.stop(grace=None)
        self._log.close()
        if self._is_own:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def ended(self) -> None:
        assert self._server is not None
        await self._server.wait_for_termination()


class _Streams(streams_pb2_grpc.StreamsServicer):
    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: set[asyncio.Event] = set()

    async def BatchAppend(  # noqa: N802 -- the name of the protocol
        self, requests: AsyncIterator[Any], _: Any
    ) -> AsyncIterator[streams_pb2.BatchAppendResp]:
        async for request in requests:
            options = request.options
            stream = options.stream_identifier.stream_name.decode()
            answer = self._log.append(
                stream,
                _expected(options, "stream_position"),
                [
                    Proposed(one.id.string, dict(one.metadata), one.data, one.custom_metadata)
                    for one in request.proposed_messages
                ],
            )
            self._wake()
            response = streams_pb2.BatchAppendResp(
                correlation_id=request.correlation_id, stream_identifier=options.stream_identifier
            )
            if isinstance(answer, Written):
                response.success.current_revision = answer.revision
                response.success.position.commit_position = answer.position
                response.success.position.prepare_position = answer.position
            else:
                response.error.CopyFrom(_refusal(stream, answer))
            yield response

    async def Tombstone(  # noqa: N802
        self, request: streams_pb2.TombstoneReq, context: Any
    ) -> streams_pb2.TombstoneResp:
        options = request.options
        stream = options.stream_identifier.stream_name.decode()
        answer = self._log.tombstone(stream, _expected(options, "revision"))
        if answer == "deleted":
            await _abort(context, f"Event stream '{stream}' is deleted.")
        if isinstance(answer, WrongVersion):
            actual = -1 if answer.current is None else answer.current
            wanted = _expected(options, "revision")
            number = wanted if isinstance(wanted, int) else -1
            await _abort(
                context,
                f"Tombstone failed due to WrongExpectedVersion. Stream: {stream}, Expected version:"
                f" {number}, Actual version: {actual}",
            )
        self._wake()
        return streams_pb2.TombstoneResp()

    async def Read(  # noqa: N802
        self, request: streams_pb2.ReadReq, context: Any
    ) -> AsyncIterator[streams_pb2.ReadResp]:
        options = request.options
        if options.WhichOneof("stream_option") == "stream":
            name = options.stream.stream_identifier.stream_name.decode()
            there = self._log.stream(name)
            if there == "deleted":
                await _abort(context, f"Event stream '{name}' is deleted.")
            elif there is None:
                yield streams_pb2.ReadResp(stream_not_found=streams_pb2.ReadResp.StreamNotFound())
            else:
                for record in _of_stream(options, there):
                    yield _event(record)
        elif options.WhichOneof("count_option") == "subscription":
            async for response in self._subscribed(options):
                yield response
        else:
            chosen = _filter(options)
            records = (one for one in self._of_log(options) if chosen(one))
            for record in islice(records, options.count):
                yield _event(record)

    def _of_log(self, options: Any) -> Iterable[Record]:
        """Backwards from the end, or forwards from a position, whose event is included."""
        records = self._log.records[:]
        if options.read_direction == streams_pb2.ReadReq.Options.Backwards:
            return reversed(records)
        return records[bisect_left(records, _start_of(options), key=_position) :]

    async def _subscribed(self, options: Any) -> AsyncIterator[streams_pb2.ReadResp]:
        chosen, after = _filter(options), _start_of(options)
        if options.all.WhichOneof("all_option") == "end":
            after = self._log.records[-1].position
        yield streams_pb2.ReadResp(
            confirmation=streams_pb2.ReadResp.SubscriptionConfirmation(subscription_id="double")
        )
        woken = asyncio.Event()
        self._waiting.add(woken)
        # The event at the position itself is not sent again.
        next_number = bisect_right(self._log.records, after, key=_position)
        window = max(1, options.filter.max * options.filter.checkpointIntervalMultiplier)
        try:
            while True:
                woken.clear()
                passed = 0
                while next_number < len(self._log.records):
                    record = self._log.records[next_number]
                    next_number, passed = next_number + 1, passed + 1
                    if chosen(record):
                        yield _event(record)
                    if passed % window == 0:
                        yield _checkpoint(record.position)
                if passed:
                    yield _checkpoint(self._log.records[-1].position)
                yield _caught_up(self._log.records[next_number - 1].position)
                await woken.wait()
        finally:
            self._waiting.discard(woken)

    def _wake(self) -> None:
        for one in self._waiting:
            one.set()


def _expected(options: Any, revision: str) -> Expected:
    kind = options.WhichOneof(
        "expected_stream_position" if revision == "stream_position" else "expected_stream_revision"
    )
    if kind == revision:
        return int(getattr(options, revision))
    named: dict[str, Expected] = {"no_stream": "no_stream", "any": "any", "stream_exists": "exists"}
    return named[kind]


def _refusal(stream: str, answer: object) -> status_pb2.Status:
    detail: Any
    if isinstance(answer, WrongVersion):
        code, detail = code_pb2.FAILED_PRECONDITION, shared_pb2.WrongExpectedVersion()
        if answer.current is None:
            detail.current_no_stream.CopyFrom(empty_pb2.Empty())
        else:
            detail.current_stream_revision = answer.current
    elif answer == "deleted":
        code, detail = code_pb2.FAILED_PRECONDITION, shared_pb2.StreamDeleted()
        detail.stream_identifier.stream_name = stream.encode()
    else:
        code = code_pb2.INVALID_ARGUMENT
        detail = shared_pb2.MaximumAppendSizeExceeded(maxAppendSize=MAX_APPEND_BYTES)
    packed = any_pb2.Any()
    packed.Pack(detail)
    return status_pb2.Status(code=code, message="refused by the double", details=packed)


def _of_stream(options: Any, there: list[Record]) -> Iterator[Record]:
    start = options.stream.WhichOneof("revision_option")
    number = int(options.stream.revision)
    if options.read_direction == streams_pb2.ReadReq.Options.Backwards:
        upto = there if start == "end" else there[: number + 1]
        records: Iterable[Record] = reversed(upto)
    else:
        records = there[0 if start == "start" else number :]
    yield from islice(records, options.count)


def _filter(options: Any) -> Any:
    if options.WhichOneof("filter_option") != "filter":
        return lambda _: True
    kind = options.filter.WhichOneof("filter")
    expression = getattr(options.filter, kind)
    pattern, prefixes = re.compile(expression.regex), tuple(expression.prefix)

    def chosen(record: Record) -> bool:
        name = record.stream if kind == "stream_identifier" else record.properties["type"]
        return name.startswith(prefixes) if prefixes else pattern.search(name) is not None

    return chosen


def _start_of(options: Any) -> int:
    is_position = options.all.WhichOneof("all_option") == "position"
    return int(options.all.position.commit_position) if is_position else 0


def _position(record: Record) -> int:
    return record.position


def _event(record: Record) -> streams_pb2.ReadResp:
    event = streams_pb2.ReadResp.ReadEvent.RecordedEvent(
        # The real server gives a tombstone an id, too.
        id=shared_pb2.UUID(string=record.id or f"{record.position:032x}"),
        stream_identifier=shared_pb2.StreamIdentifier(stream_name=record.stream.encode()),
        stream_revision=record.revision,
        prepare_position=record.position,
        commit_position=record.position,
        metadata=record.properties,
        custom_metadata=record.metadata,
        data=record.data,
    )
    return streams_pb2.ReadResp(
        event=streams_pb2.ReadResp.ReadEvent(event=event, commit_position=record.position)
    )


def _checkpoint(position: int) -> streams_pb2.ReadResp:
    return streams_pb2.ReadResp(
        checkpoint=streams_pb2.ReadResp.Checkpoint(
            commit_position=position, prepare_position=position
        )
    )


def _caught_up(position: int) -> streams_pb2.ReadResp:
    response = streams_pb2.ReadResp(caught_up=streams_pb2.ReadResp.CaughtUp())
    response.caught_up.position.commit_position = position
    response.caught_up.position.prepare_position = position
    return response


async def _abort(context: Any, details: str) -> None:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)
