"""tail: events as they are appended, by whatever process."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from gesta.cli.invocation import Invocation
from gesta.cli.output import JsonLines, print_json_line, say, tell
from gesta.cli.stop_signal import StopSignal

if TYPE_CHECKING:
    from gesta.api_types.requests import StreamEvent
    from gesta.cli.backend import Backend

#: How soon a signal to stop is noticed.
POLL_SECONDS = 0.1


async def tail(
    call: Invocation,
    flow: Annotated[str | None, typer.Option(help="Only of this flow.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many events.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Follow new events until Ctrl-C."""
    left = count
    async with StopSignal() as stop, call.backend() as backend:
        async for event in _until(stop, backend):
            if flow not in (None, event.flow):
                continue
            _print(event, backend.tenant, as_json=as_json)
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def _until(stop: StopSignal, backend: Backend) -> AsyncIterator[StreamEvent]:
    """What is followed, until somebody stops it."""
    from gesta.runtime.clock import Signal, SystemRuntime, spawn

    arrived: deque[StreamEvent] = deque()
    news = Signal(SystemRuntime())

    async def gather() -> None:
        is_told = False
        async for event in backend.follow():
            if event is not None:
                arrived.append(event)
                news.set()
            elif not is_told:
                tell("following; Ctrl-C stops it")
                is_told = True

    following = spawn(gather(), "gesta-tail")
    following.add_done_callback(lambda _: news.set())
    try:
        while not stop.has_come and not following.done():
            while arrived:
                yield arrived.popleft()
            await news.wait(POLL_SECONDS)
        if following.done():
            following.result()
    finally:
        following.cancel()


def _print(event: StreamEvent, tenant: str, *, as_json: bool) -> None:
    from gesta.cli.shown import event_of, ms_of
    from gesta.cli.wording import describe, event_name, moment

    if as_json:
        told = msgspec.to_builtins(event)
        first = {"requestId": told.pop("requestId"), "flow": told.pop("flow"), "tenant": tenant}
        print_json_line({**first, **told})
        return
    at = ms_of(event.at)
    name, words = event_name(event.type, event.flow), describe(event_of(event, event.flow), at)
    say(f"{moment(at)[11:]}  {event.request_id}  {event.flow}  {name:<15} {words}".rstrip())
