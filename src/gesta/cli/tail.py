"""tail: events as they are appended, by whatever process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from gesta.cli.invocation import Invocation
from gesta.cli.output import JsonLines, print_json_line, say, tell
from gesta.cli.stop_signal import StopSignal

if TYPE_CHECKING:
    from gesta.domain.events import Meta
    from gesta.engine import Engine
    from gesta.event_store import Recorded

#: How soon another process's events are noticed.
POLL_SECONDS = 0.1
BATCH = 1_000
CONFIG = "config"


async def tail(
    call: Invocation,
    flow: Annotated[str | None, typer.Option(help="Only of this flow.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many events.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Follow new events until Ctrl-C."""
    from gesta.domain.codec import decode_meta

    tenant, left = call.tenant_name, count
    async with StopSignal() as stop, call.opened() as engine:
        position = await engine.road.outside.stores.events.end()
        tell("following; Ctrl-C stops it")
        async for recorded in _follow(engine, position, stop):
            try:
                meta = decode_meta(recorded.meta)
                if meta.tenant != tenant or meta.flow == CONFIG or flow not in (None, meta.flow):
                    continue
                _print(recorded, meta, as_json=as_json)
            except msgspec.MsgspecError as error:
                # What the projector cannot read either stands in `gesta list --parked`.
                tell(f"cannot be read: {recorded.stream}, version {recorded.version}: {error}", "yellow")
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def _follow(engine: Engine, position: int, stop: StopSignal) -> AsyncIterator[Recorded]:
    events = engine.road.outside.stores.events
    while not stop.has_come:
        batch = await events.follow(position, BATCH)
        for recorded in batch:
            position = recorded.position
            yield recorded
        if not batch:
            await events.changed(POLL_SECONDS)


def _print(recorded: Recorded, meta: Meta, *, as_json: bool) -> None:
    from gesta.cli.records import event_record
    from gesta.cli.wording import describe, event_name, moment
    from gesta.domain.codec import event_types

    event = event_types(meta.flow).decode(recorded.type, recorded.data)
    if as_json:
        known = {"requestId": meta.request_id, "flow": meta.flow, "tenant": meta.tenant}
        print_json_line({**known, **event_record((recorded.type, event, meta), recorded.version)})
        return
    name = event_name(recorded.type, meta.flow)
    say(
        f"{moment(meta.occurred_at)[11:]}  {meta.request_id}  {meta.flow}  {name:<15} {describe(event, meta.occurred_at)}".rstrip()
    )
