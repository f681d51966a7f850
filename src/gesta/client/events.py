"""Server-sent events, read as they come; a stream that breaks goes on behind the last event that
was seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec

from gesta.api_types.requests import StreamEvent
from gesta.client.connection import (
    CONNECT_SECONDS,
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    Connection,
    seconds_of,
)
from gesta.client.problems import error_of, read_problem
from gesta.runtime.clock import sleep

#: The server gives a sign of life every 15 s: one that is silent for longer is gone.
SILENCE_SECONDS = 45.0
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
            try:
                async for event in self._connection():
                    yield event
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            self._failures += 1
            line = self._line
            await sleep(
                line.runtime,
                line.runtime.chance()
                * min(PAUSE_SECONDS_MAX, PAUSE_SECONDS * (1 << min(self._failures, 10))),
            )

    async def _connection(self) -> AsyncIterator[StreamEvent | None]:
        headers = self._line.authorized() | {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        limit = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        async with self._line.session.get(
            f"{self._line.server}/v1/stream",
            params=self._query,
            headers=headers,
            timeout=limit,
            allow_redirects=False,
        ) as answer:
            if answer.status != 200:
                await self._refused(answer)
                return
            async for event_id, data in _parts(answer.content):
                self._failures = 0
                # The place moves before the event is handed on: whoever stops there has had it.
                self._last_id = event_id or self._last_id
                yield msgspec.json.decode(data, type=StreamEvent) if data else None

    async def _refused(self, answer: aiohttp.ClientResponse) -> None:
        raw = await answer.content.read(64 * 1024)
        if answer.status != 429 and answer.status < 500:
            raise error_of(read_problem(answer.status, raw), None)
        await sleep(
            self._line.runtime,
            min(PAUSE_SECONDS_MAX, seconds_of(answer.headers.get("Retry-After")) or 0.0),
        )


async def _parts(content: Any) -> AsyncIterator[tuple[str, bytes]]:
    """Id and data of each event; an event without data moves the place only."""
    event_id, data, rest = "", [], b""
    async for chunk in content.iter_any():
        rest += chunk
        if len(rest) > LINE_BYTES_MAX:
            raise aiohttp.ClientPayloadError("that is no stream of events")
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
