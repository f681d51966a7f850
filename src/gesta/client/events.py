"""Reads server-sent events. A broken stream continues after the last event seen."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing

import msgspec

from gesta.api_types.requests import StreamEvent
from gesta.client.clock import sleep
from gesta.client.connection import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Again, Ask, Connection

#: The maximum length of an event.
LINE_BYTES_MAX = 4 * 1024 * 1024


async def follow(
    line: Connection, query: Mapping[str, str], last_id: str | None = None
) -> AsyncGenerator[StreamEvent | None]:
    """Events without an end. None is a heartbeat; the first one says that no later event is missed.

    Reconnects after an error, unless a repetition cannot help; then raises it.
    """
    failures = 0
    while True:
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        parser, wait = _Parser(), 0.0
        ask = Ask("GET", "/v1/stream", is_repeatable=True, query=query, headers=headers)
        try:
            async with aclosing(line.stream(ask)) as chunks:
                async for chunk in chunks:
                    for event_id, data in parser.feed(chunk):
                        failures = 0
                        # The position moves first: a caller that stops here has had the event.
                        last_id = event_id or last_id
                        yield msgspec.json.decode(data, type=StreamEvent) if data else None
                    if parser.is_lost:
                        break
        except Again as again:
            wait = min(PAUSE_SECONDS_MAX, again.retry_after_seconds or 0.0)
        failures += 1
        ceiling = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << min(failures, 10)))
        await sleep(line.clock, wait + line.clock.chance() * ceiling)


class _Parser:
    """Id and data of each event. An event without data only moves the position."""

    def __init__(self) -> None:
        self._event_id, self._rest = "", b""
        self._data: list[bytes] = []

    @property
    def is_lost(self) -> bool:
        return len(self._rest) > LINE_BYTES_MAX

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id":
                self._event_id = value.decode("utf-8", "replace")
            elif name == b"data":
                self._data.append(value)
            elif not line.strip() and (self._event_id or self._data):
                yield self._event_id, b"\n".join(self._data)
                self._event_id, self._data = "", []
