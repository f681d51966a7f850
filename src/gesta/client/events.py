"""Server-sent events, read as they come; a stream that breaks goes on behind the last event that
was seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from gesta.api_types.requests import StreamEvent
from gesta.client.clock import sleep
from gesta.client.connection import PAUSE_SECONDS, PAUSE_SECONDS_MAX, Connection

#: No event is longer; more is no stream of ours.
LINE_BYTES_MAX = 4 * 1024 * 1024


class Following:
    """One stream, over as many connections as it takes."""

    def __init__(self, line: Connection, query: Mapping[str, str], last_id: str | None) -> None:
        self._line, self._query, self._last_id = line, dict(query), last_id
        self._failures = 0

    async def events(self) -> AsyncIterator[StreamEvent]:
        async for event in self.parts():
            if event is not None:
                yield event

    async def parts(self) -> AsyncIterator[StreamEvent | None]:
        """Without an end; None is a sign of life, the first of which says that nothing is missed
        from now on.

        Raises what the server refuses for good; whatever may pass is waited for.
        """
        while True:
            async for event in self._connection():
                yield event
            self._failures += 1
            clock = self._line.clock
            await sleep(
                clock,
                clock.chance()
                * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << min(self._failures, 10))),
            )

    async def _connection(self) -> AsyncIterator[StreamEvent | None]:
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        async for event_id, data in _parts(self._line.stream("/v1/stream", self._query, headers)):
            self._failures = 0
            # The position moves before the event is handed on: whoever stops there has had it.
            self._last_id = event_id or self._last_id
            yield msgspec.json.decode(data, type=StreamEvent) if data else None


async def _parts(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Id and data of each event; an event without data moves the position only."""
    event_id, data, rest = "", [], b""
    async for chunk in chunks:
        rest += chunk
        if len(rest) > LINE_BYTES_MAX:
            # No stream of ours; another try begins anew.
            return
        *lines, rest = rest.split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id":
                event_id = value.decode("utf-8", "replace")
            elif name == b"data":
                data.append(value)
            elif not line.strip() and (event_id or data):
                yield event_id, b"\n".join(data)
                event_id, data = "", []
