"""show and tail: one request with its history, and new events of all processes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gesta.cli.arguments import Id
from gesta.cli.invocation import Invocation
from gesta.cli.output import Json, JsonLines, facts, print_json, print_json_line, say, table, tell
from gesta.cli.output import show as print_tables
from gesta.cli.stop_signal import StopSignal

if TYPE_CHECKING:
    from rich.table import Table

    from gesta.admin.wording import Target
    from gesta.api_types.requests import (
        AttemptRepresentation,
        EventRepresentation,
        HeldBy,
        StreamEvent,
    )
    from gesta.cli.backend import Backend
    from gesta.domain.state import State


#: How soon a signal to stop is noticed.
POLL_SECONDS = 0.1


async def show(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show a request: its state, its history and its attempts.

    Encrypted values of the payload are not shown.
    """
    from gesta.admin.wording import state_of

    async with call.backend() as backend:
        request = await backend.request(request_id)
        history = await backend.client.events(request.id, flow=request.flow)
        attempts = await backend.client.attempts(request.id, flow=request.flow)
        if as_json:
            print_json({**msgspec.to_builtins(request), "attempts": attempts, "history": history})
            return
        state = state_of(request)
        tables = [
            _summary(state, request.payload, request.held_by, backend.now_ms()),
            _history(state, history),
        ]
        print_tables(*tables, *([_attempts(attempts)] if attempts else []))
        hint = _next_step(state, request.payload, call.place, backend.now_ms())
        if hint:
            tell(hint)
        if state.wants is not None:
            await backend.warn_if_idle()


def _summary(
    state: State, payload: dict[str, Any] | None, held_by: HeldBy | None, now_ms: int
) -> Table:
    from gesta.admin.wording import moment_and_distance

    content = f"(flow {state.flow} is not declared here; name its program with --app)"
    if payload is not None:
        content = msgspec.json.encode(payload).decode()
    executed = "yes, the effect may have happened" if state.in_doubt else ""
    is_cancelling = state.cancel_requested and not state.is_terminal
    return facts(
        {
            "request": state.id,
            "status": state.status,
            "flow": state.flow,
            "test": "yes: it reaches only the sandbox" if state.test else "",
            "tenant": state.tenant if state.tenant != "default" else "",
            "key": state.key or "",
            "created": moment_and_distance(state.created_at, now_ms),
            "changed": moment_and_distance(state.updated_at, now_ms),
            "next": moment_and_distance(state.due_at, now_ms),
            "expires": moment_and_distance(state.expires_at, now_ms),
            "held": "" if held_by is None else held_by.sentence,
            "cancel": "requested; the running attempt finishes first" if is_cancelling else "",
            "possibly executed": executed,
            "reason": state.reason,
            "detail": state.detail,
            "provider id": state.provider_id,
            "intent": str(state.intent) if state.intent > 1 else "",
            "payload": content,
        }
    )


def _history(state: State, history: list[EventRepresentation]) -> Table:
    from gesta.admin.wording import currency_of, describe, event_name, event_of, moment, ms_of

    rows = []
    currency = currency_of(event_of(history[0], state.flow)) if history else None
    for one in history:
        at, event = ms_of(one.at), event_of(one, state.flow)
        rows.append(
            (
                str(one.version),
                moment(at),
                event_name(one.type, state.flow),
                describe(event, at, currency),
                one.actor or "",
            )
        )
    return table(
        ("", "time (UTC)", "event", "what it says", "by"),
        rows,
        title="History",
        folded=("what it says", "by"),
    )


def _attempts(attempts: list[AttemptRepresentation]) -> Table:
    rows = [
        (
            str(one.number),
            (one.ended_at or one.started_at or "").replace("T", " "),
            one.outcome or "running",
            one.reason or "",
            one.detail or "",
            ", ".join(f"{name} v{version}" for name, version in one.used.items()),
        )
        for one in attempts
    ]
    columns = ("", "ended (UTC)", "outcome", "reason", "detail", "config used")
    width = len(columns) if any(one.used for one in attempts) else len(columns) - 1
    return table(
        columns[:width],
        [row[:width] for row in rows],
        title="Attempts",
        folded=("reason", "detail", "config used"),
    )


def _next_step(state: State, payload: dict[str, Any] | None, place: Target, now_ms: int) -> str:
    """What a person can do about a request that has failed or waits."""
    from gesta.admin.representations import ERASED

    if state.status == "unknown" and state.due_at is None:
        from gesta.admin.doctor.explain import OTHER_WORDS

        return (
            "a person decides:"
            f" {place.command(f'resolve {state.id} --succeeded --evidence TEXT')}{OTHER_WORDS}"
        )
    if state.reason == "subject_erased":
        return "a data subject was erased: the request can no longer be sent"
    if state.status in ("failed", "expired"):
        return f"again: {place.command(f'redrive {state.id}')}"
    if state.status == "queued" and ERASED in msgspec.json.encode(payload):
        # It would fail immediately; `gesta doctor ID` gives the exact reason.
        return f"why it waits: {place.command(f'doctor {state.id}')}"
    if state.status in ("queued", "unknown") and (state.due_at or 0) > now_ms:
        return f"at once: {place.command(f'retry {state.id}')}"
    return ""


async def tail(
    call: Invocation,
    flow: Annotated[
        str | None, typer.Option(metavar="FLOW", help="Only events of this flow.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many events.")
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Follow new events until Ctrl-C."""
    left = count
    async with StopSignal() as stop, call.backend() as backend:
        async for event in _until(stop, backend):
            if flow not in (None, event.flow):
                continue
            _print_event(event, backend.tenant, as_json=as_json)
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def _until(stop: StopSignal, backend: Backend) -> AsyncIterator[StreamEvent]:
    """The events, until a signal stops the command."""
    from gesta.client.events import follow
    from gesta.runtime.clock import Signal, SystemRuntime, spawn

    arrived: deque[StreamEvent] = deque()
    arrival = Signal(SystemRuntime())

    async def gather() -> None:
        is_announced = False
        async for event in follow(backend.client.line, {}):
            if event is not None:
                arrived.append(event)
                arrival.set()
            elif not is_announced:
                tell("following; Ctrl-C stops it")
                is_announced = True

    following = spawn(gather(), "gesta-tail")
    following.add_done_callback(lambda _: arrival.set())
    try:
        while not stop.has_come and not following.done():
            while arrived:
                yield arrived.popleft()
            await arrival.wait(POLL_SECONDS)
        if following.done():
            following.result()
    finally:
        following.cancel()


def _print_event(event: StreamEvent, tenant: str, *, as_json: bool) -> None:
    from gesta.admin.wording import describe, event_name, event_of, moment, ms_of

    if as_json:
        printed = msgspec.to_builtins(event)
        first = {
            "requestId": printed.pop("requestId"),
            "flow": printed.pop("flow"),
            "tenant": tenant,
        }
        print_json_line({**first, **printed})
        return
    at = ms_of(event.at)
    name, words = event_name(event.type, event.flow), describe(event_of(event, event.flow), at)
    say(f"{moment(at)[11:]}  {event.request_id}  {event.flow}  {name:<15} {words}".rstrip())
