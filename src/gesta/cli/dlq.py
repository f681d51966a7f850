"""dlq: list, show, redrive and purge dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from gesta.api_types.requests import Decided
from gesta.cli.arguments import Cursor, Id, Ttl
from gesta.cli.decisions import (
    Again,
    DryRun,
    Rate,
    Resume,
    Since,
    Target,
    Template,
    Until,
    decide_about,
)
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, facts, print_items, print_json, show, tell

if TYPE_CHECKING:
    from gesta.api_types.decisions import DeadLetter
    from gesta.api_types.requests import Whole
    from gesta.cli.backend import Backend

#: Bounds the memory.
MANY = 100_000

OfFlow = Annotated[
    str | None, typer.Option("--flow", metavar="FLOW", help="Dead letters of this flow.")
]
OfReason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="REASON",
        help="Dead letters with this stored reason; http_4xx is the whole class.",
    ),
]


@dataclass(frozen=True)
class Choice:
    """One dead letter, or all that match the filters."""

    group: ClassVar = "dlq "

    request_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Id or key of a request; or a filter.")
    ] = None
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All dead letters; their status is always failed. Not needed with a filter.",
        ),
    ] = False
    flow: OfFlow = None
    reason: OfReason = None
    target: Target = None
    template: Template = None
    since: Since = None
    until: Until = None
    dry_run: DryRun = False
    rate: Rate = None
    resume: Resume = None

    @property
    def conditions(self) -> dict[str, Any]:
        return {"dead_letters": True, **self._filters}

    def check(self) -> None:
        """Refuse several kinds of choice together."""
        by_filter = bool(self.every or self._filters)
        chosen = [self.request_id is not None, by_filter, self.resume is not None]
        if sum(chosen) != 1:
            raise typer.BadParameter(
                "give either an ID, or filters (--flow, --reason, --target, --template, --since,"
                " --until) or --all, or --resume"
            )
        if not by_filter and self.dry_run:
            raise typer.BadParameter("--dry-run needs a filter or --all")

    @property
    def _filters(self) -> dict[str, Any]:
        names = ("flow", "reason", "target", "template", "since", "until")
        return {name: value for name in names if (value := getattr(self, name))}


async def list_letters(
    call: Invocation,
    flow: OfFlow = None,
    reason: OfReason = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MANY, metavar="N", help="At most this many.")
    ] = 20,
    cursor: Cursor = None,
    as_json: Json = False,
) -> None:
    """List requests that failed permanently, newest first."""
    from gesta.api_types.decisions import DeadLetter
    from gesta.api_types.structs import ListOf

    async with call.backend() as backend:
        await backend.warn_of_lag()
        query = {"flow": flow, "reason": reason}
        letters, following = await backend.page(
            "dead-letters",
            answer=ListOf[DeadLetter],
            query=query,
            limit=limit,
            cursor=cursor,
        )
        nothing = "no dead letters"
        if not letters and any(query.values()):
            nothing += f" that match{await backend.others('dead-letters', query=query)}"
        print_items(
            letters,
            ("id", "flow", "failed (UTC)", "key", "why"),
            _row,
            folded=("key", "why"),
            nothing=nothing,
            next_=following,
            as_json=as_json,
        )


async def show_letter(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show a dead letter: its reason, its attempts and until when it is kept."""
    async with call.backend() as backend:
        request = await backend.request(request_id)
        letter = await backend.client.dead_letter(request.id, flow=request.flow)
        if as_json:
            print_json(letter)
            return
        failure = letter.failure
        show(
            facts(
                {
                    "request": letter.id,
                    "flow": letter.flow,
                    "key": letter.key or "",
                    "reason": failure.reason,
                    "message": failure.detail or "",
                    "attempts": str(failure.attempt_count),
                    "failed": failure.at,
                    "kept until": failure.kept_until,
                }
            )
        )
        again, history = (call.place.command(f"{verb} {letter.id}") for verb in ("redrive", "show"))
        tell(f"to redrive it: {again}; its history: {history}")


async def redrive_letters(
    call: Invocation,
    choice: Choice,
    ttl: Ttl = None,
    again: Again = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Execute dead letters again, each with a new budget of attempts; their count goes on.

    For one request, `gesta redrive ID` does the same, also if it expired, was cancelled, is unknown
    or was purged.
    """
    person = call.actor(by).user_id

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        await backend.client.dead_letter(request.id, flow=request.flow)
        decided = await backend.client.redrive(
            request.id, flow=request.flow, ttl=ttl, again=again, by=person
        )
        return decided, "it is due now"

    more = {"ttl_seconds": None if ttl is None else ttl.total_seconds(), "again": again}
    await decide_about(call, choice, "redrive", decide, by=person, as_json=as_json, **more)


async def purge_letters(
    call: Invocation, choice: Choice, by: By = None, as_json: Json = False
) -> None:
    """Remove requests from the dead letters; their events stay."""
    person = call.actor(by).user_id

    async def decide(backend: Backend, request: Whole) -> tuple[Decided, str]:
        await backend.client.purge(request.id, flow=request.flow, by=person)
        return Decided(request.id, request.flow, request.status), "it is no longer a dead letter"

    await decide_about(call, choice, "purge", decide, by=person, as_json=as_json)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    from gesta.admin.wording import count_of, joined

    failure = letter.failure
    why = joined(failure.reason, failure.detail or "", count_of(failure.attempt_count, "attempt"))
    return letter.id, letter.flow, failure.at[:16].replace("T", " "), letter.key or "", why
