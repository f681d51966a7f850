"""show: one request with everything that is on record about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gesta.cli.invocation import Invocation
from gesta.cli.lookup import Id, id_of
from gesta.cli.output import Json, facts, print_json, table, tell
from gesta.cli.output import show as print_tables

if TYPE_CHECKING:
    from rich.table import Table

    from gesta.api_types.admin import PauseRepresentation
    from gesta.api_types.requests import AttemptRepresentation, EventRepresentation
    from gesta.cli.backend import Fields
    from gesta.cli.target import Target
    from gesta.domain.state import State


async def show(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show a request: what became of it, its history and its attempts.

    What is sealed in the payload is not shown.
    """
    from gesta.cli.shown import state_of

    async with call.backend() as backend:
        request_id = await id_of(backend, request_id)
        request, pause = await backend.whole(request_id)
        history = await backend.events(request.flow, request_id)
        attempts = await backend.attempts(request.flow, request_id)
        if as_json:
            print_json({**msgspec.to_builtins(request), "attempts": attempts, "history": history})
            return
        state = state_of(request)
        tables = [
            _summary(state, request.payload, pause, backend.now_ms()),
            _history(state, history),
        ]
        print_tables(*tables, *([_attempts(attempts)] if attempts else []))
        hint = _next_step(state, request.payload, call.place)
        if hint:
            tell(hint)
        if state.wants is not None:
            await backend.warn_if_idle()


def _summary(
    state: State, payload: Fields | None, pause: PauseRepresentation | None, now_ms: int
) -> Table:
    from gesta.cli.wording import moment_and_distance, paused

    content = f"(flow {state.flow} is not declared here; name its program with --app)"
    if payload is not None:
        content = msgspec.json.encode(payload).decode()
    doubt = "yes, the effect may have happened" if state.in_doubt else ""
    is_called_back = state.cancel_requested and not state.is_terminal
    return facts(
        {
            "request": state.id,
            "status": state.status,
            "flow": state.flow,
            "test": "yes: it reaches the sandbox and nobody else" if state.test else "",
            "tenant": state.tenant if state.tenant != "default" else "",
            "key": state.key or "",
            "created": moment_and_distance(state.created_at, now_ms),
            "changed": moment_and_distance(state.updated_at, now_ms),
            "next": moment_and_distance(state.due_at, now_ms),
            "expires": moment_and_distance(state.expires_at, now_ms),
            "held": "" if pause is None else paused(pause),
            "cancel": (
                "wished for; the end of the running attempt decides" if is_called_back else ""
            ),
            "in doubt": doubt,
            "reason": state.reason,
            "detail": state.detail,
            "provider id": state.provider_id,
            "intent": str(state.intent) if state.intent > 1 else "",
            "payload": content,
        }
    )


def _history(state: State, history: list[EventRepresentation]) -> Table:
    from gesta.cli.shown import event_of, ms_of
    from gesta.cli.wording import describe, event_name, moment

    rows = []
    for one in history:
        at, event = ms_of(one.at), event_of(one, state.flow)
        rows.append(
            (
                str(one.version),
                moment(at),
                event_name(one.type, state.flow),
                describe(event, at),
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
            one.reason,
            one.detail,
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


def _next_step(state: State, payload: Fields | None, place: Target) -> str:
    """What a person can do about a request that does not go on by itself."""
    from gesta.admin.representations import ERASED

    if state.status == "unknown" and state.due_at is None:
        from gesta.admin.doctor.explain import OTHER_WORDS

        return (
            "a person decides:"
            f" {place.command(f'resolve {state.id} --executed --evidence TEXT')}{OTHER_WORDS}"
        )
    if state.reason == "subject_erased":
        return "the person it is about was erased: it cannot be sent any more"
    if state.status in ("failed", "expired"):
        return f"again: {place.command(f'redrive {state.id}')}"
    if state.status == "queued" and ERASED in msgspec.json.encode(payload):
        # It would fail at once; what exactly is the matter is for the doctor to say.
        return f"why it waits: {place.command(f'doctor {state.id}')}"
    if state.status in ("queued", "unknown") and state.due_at is not None:
        return f"at once: {place.command(f'retry {state.id}')}"
    return ""
