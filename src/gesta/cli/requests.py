"""submit and list: submit a request, and list requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gesta.cli.arguments import (
    Cursor,
    InStatus,
    Ttl,
    after,
    before,
    duration,
    json_document,
    time_or_age,
    time_or_delay,
)
from gesta.cli.command import FAILED
from gesta.cli.invocation import Invocation
from gesta.cli.output import (
    Json,
    print_items,
    print_json,
    print_list,
    say,
    show,
    table,
    tell,
    tell_more,
)
from gesta.errors import InvalidRequest, OutcomeTimeout

if TYPE_CHECKING:
    from gesta.api_types.requests import Submitted
    from gesta.cli.backend import Backend
    from gesta.domain.outcome import Outcome

#: How many quarantined events and jobs are listed.
QUARANTINED_MAX = 1_000


@dataclass(frozen=True)
class Delivery:
    """The options of a request, beside its payload."""

    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Your own name for it: the same key is executed once."),
    ] = None
    deliver_at: Annotated[
        Any,
        typer.Option(
            parser=time_or_delay,
            metavar="TIME",
            help="Not to be executed before this time: 2h (from now), or 2030-01-31T09:00:00Z.",
        ),
    ] = None
    ttl: Ttl = None
    priority: Annotated[int, typer.Option(metavar="N", help="1 (most urgent) to 10.")] = 5


async def submit(
    call: Invocation,
    flow: Annotated[
        str, typer.Argument(metavar="FLOW", help="The flow, e.g. notification.webhook.")
    ],
    payload: Annotated[
        str,
        typer.Argument(
            metavar="JSON|@FILE|-", help="The payload: JSON itself, a file, or - for stdin."
        ),
    ],
    delivery: Delivery,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Wait this long for the outcome, e.g. 20s. Exit code 1: failed; 5: none yet.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Submit a request; its id is printed once it is on disk."""
    from gesta.api_types.requests import WILL_FAIL

    async with call.backend(create=True) as backend:
        delivery = replace(delivery, deliver_at=after(backend.now_ms(), delivery.deliver_at))
        try:
            answer = await _submitted(backend, flow, json_document(payload), delivery)
        except InvalidRequest as error:
            raise _for_a_shell(InvalidRequest(flow, error.fields), delivery.deliver_at) from None
        if not as_json:
            say(answer.id)
            tell(f"{answer.verdict}; see it with: {call.place.command(f'show {answer.id}')}")
            for warning in answer.warnings:
                label = "warning" if warning.code in WILL_FAIL else "held"
                tell(f"{label}: {warning.message}", "yellow")
        await backend.warn_if_idle()
        await _end(backend, answer, wait, as_json=as_json)


async def _submitted(backend: Backend, flow: str, fields: object, delivery: Delivery) -> Submitted:
    from gesta.intake.submit_options import Options

    call, actor = backend.call, backend.call.actor()
    if backend.engine is not None:
        # Errors are reported before a store is created.
        tenant, given = call.settings.tenant, delivery
        options = Options(given.key, tenant, given.deliver_at, given.ttl, given.priority)
        backend.engine.payload(flow, fields, options)
    if not isinstance(fields, dict):
        raise InvalidRequest(flow, {"payload": "must be a JSON object"})
    return await backend.client.submit(
        flow,
        fields,
        key=delivery.key,
        deliver_at=delivery.deliver_at,
        ttl=delivery.ttl,
        priority=delivery.priority,
        by=actor.user_id,
    )


def _for_a_shell(error: InvalidRequest, deliver_at: datetime | None) -> InvalidRequest:
    """The same errors, with the form of the command line where the error suggests Python code."""
    if "deliver_at" not in error.fields or deliver_at is None or deliver_at.tzinfo is not None:
        return error
    return InvalidRequest(
        error.flow,
        error.fields
        | {"deliver_at": "a time with its time zone is needed, for instance 2030-01-01T09:00:00Z"},
    )


async def _end(
    backend: Backend, request: Submitted, wait: timedelta | None, *, as_json: bool
) -> None:
    """Wait for the outcome if --wait is given, and print it."""
    from gesta.admin.wording import state_of
    from gesta.domain.outcome import Done
    from gesta.requests.waiters import outcome_of

    outcome: Outcome | None = None
    late: OutcomeTimeout | None = None
    if wait is not None:
        try:
            ended = await backend.client.wait(request.id, wait.total_seconds(), flow=request.flow)
            outcome = outcome_of(state_of(ended))
        except OutcomeTimeout as error:
            late = await _explained(backend, request, wait, error)
    if as_json:
        printed = None if outcome is None else msgspec.to_builtins(outcome)
        print_json(
            {
                "id": request.id,
                "flow": request.flow,
                "tenant": backend.tenant,
                "verdict": request.verdict,
                "outcome": printed,
                "warnings": msgspec.to_builtins(request.warnings),
            }
        )
    elif outcome is not None:
        tell(str(outcome), "green" if isinstance(outcome, Done) else "red")
    if late is not None:
        raise late
    if outcome is not None and not isinstance(outcome, Done):
        raise typer.Exit(FAILED)


async def _explained(
    backend: Backend, request: Submitted, wait: timedelta, late: OutcomeTimeout
) -> OutcomeTimeout:
    """The error, which names as the cause that no process works on the store, if that is it."""
    if idle := await backend.idle():
        shown = await backend.client.get(request.id, flow=request.flow)
        if not shown.reason and shown.held_by is None:
            return OutcomeTimeout(request.id, shown, wait.total_seconds(), cause=idle)
        tell(idle, "yellow")
    return late


@dataclass(frozen=True)
class Selection:
    """The requests to list: those that fit every option given."""

    flow: Annotated[str | None, typer.Option(metavar="FLOW", help="Requests of this flow.")] = None
    status: InStatus = None
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Requests submitted with this key.")
    ] = None
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="With this reason.")] = None
    since: Annotated[
        Any,
        typer.Option(
            metavar="TIME", help="Created since then: 2h ago, or a time.", parser=time_or_age
        ),
    ] = None
    until: Annotated[
        Any, typer.Option(metavar="TIME", help="Created before then.", parser=time_or_age)
    ] = None
    held: Annotated[
        bool, typer.Option("--held", help="Held by a pause, or by a missing or refused credential.")
    ] = False
    test: Annotated[bool, typer.Option("--test", help="Only test requests.")] = False

    def query(self, now_ms: int) -> dict[str, Any]:
        since, until = before(now_ms, self.since), before(now_ms, self.until)
        return {
            "flow": self.flow,
            "status": self.status,
            "key": self.key,
            "reason": self.reason,
            "since": since and since.isoformat(),
            "until": until and until.isoformat(),
            "held": self.held or None,
            "test": self.test or None,
        }


async def list_requests(
    call: Invocation,
    chosen: Selection,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="At most this many.")
    ] = 20,
    quarantined: Annotated[
        bool,
        typer.Option(
            "--quarantined",
            help="Events and jobs that could not be processed.",
        ),
    ] = False,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List requests, newest first; those with an id of the caller are sorted by that id."""
    from gesta.admin.wording import note, span, state_of
    from gesta.api_types.requests import RequestRepresentation
    from gesta.api_types.structs import ListOf

    async with call.backend() as backend:
        if chosen.key is None:
            await backend.warn_of_lag()
        if quarantined:
            await _list_quarantined(backend, limit, as_json=as_json)
            return
        query = chosen.query(backend.now_ms())
        found, following = await backend.page(
            "requests",
            answer=ListOf[RequestRepresentation],
            query=query,
            limit=limit,
            cursor=cursor,
        )
        if as_json:
            print_list(found, following)
            return
        now = backend.now_ms()
        rows = [
            (
                one.id,
                one.flow,
                one.status,
                span(now - one.created_at),
                one.key or "",
                note(one, now, held_by),
            )
            for one, held_by in ((state_of(one), one.held_by) for one in found)
        ]
        if rows:
            show(
                table(("id", "flow", "status", "age", "key", "note"), rows, folded=("key", "note"))
            )
        elif any(query.values()):
            tell(f"no such requests{await backend.others('requests', query=query)}")
        else:
            tell("no requests")
        tell_more(len(rows), following)


async def _list_quarantined(backend: Backend, limit: int, *, as_json: bool) -> None:
    from gesta.admin.wording import moment, ms_of

    found = await backend.client.quarantined(min(limit, QUARANTINED_MAX))
    print_items(
        found,
        ("time", "what", "name", "version", "error"),
        lambda one: (moment(ms_of(one.at)), one.what, one.name, str(one.version), one.error),
        folded=("name", "error"),
        nothing="nothing is quarantined",
        as_json=as_json,
    )
