"""dlq: list, show, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import Cursor, Id, Ttl
from gesta.cli.command import FAILED
from gesta.cli.decisions import Again
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, facts, print_json, print_list, show, table, tell
from gesta.errors import Refused

if TYPE_CHECKING:
    from gesta.api_types.decisions import DeadLetter
    from gesta.cli.backend import Backend

#: Bounds the memory.
MANY = 100_000

OfFlow = Annotated[
    str | None, typer.Option("--flow", metavar="FLOW", help="Dead letters of this flow.")
]
OfReason = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Dead letters with this reason.")
]


@dataclass(frozen=True)
class Choice:
    """One dead letter, or all that fit the filters."""

    request_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id or key of a request; or --all.")
    ] = None
    every: Annotated[bool, typer.Option("--all", help="All dead letters that fit the filters.")] = (
        False
    )
    flow: OfFlow = None
    reason: OfReason = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which ones.")] = False


Act = Callable[["DeadLetter"], Awaitable[str]]


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
        letters, following = await backend.page(
            "dead-letters",
            answer=ListOf[DeadLetter],
            query={"flow": flow, "reason": reason},
            limit=limit,
            cursor=cursor,
        )
        if as_json:
            print_list(letters, following)
        elif letters:
            _show(letters)
        else:
            tell("no dead letters")


async def show_letter(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show a dead letter: its reason, its attempts and until when it is kept."""
    async with call.backend() as backend:
        letter = await _letter(backend, request_id)
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
                    "attempts": str(failure.attempts),
                    "failed": failure.at,
                    "kept until": failure.kept_until,
                }
            )
        )
        again, history = (
            call.place.command(f"{verb} {letter.id}") for verb in ("dlq redrive", "show")
        )
        tell(f"again: {again}; its history: {history}")


async def redrive_letters(
    call: Invocation,
    choice: Choice,
    ttl: Ttl = None,
    again: Again = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Execute dead letters again, each with a new budget of attempts."""
    person = call.actor(by).user_id
    async with call.backend() as backend:

        async def act(letter: DeadLetter) -> str:
            request = await backend.decidable(letter.id)
            decided = await backend.client.redrive(
                request.id, flow=request.flow, ttl=ttl, again=again, by=person
            )
            return decided.status

        letters = await _chosen(backend, choice)
        await _act_on_all(letters, act, dry_run=choice.dry_run, as_json=as_json)
        if not choice.dry_run:
            await backend.warn_if_idle()


async def purge_letters(
    call: Invocation, choice: Choice, by: By = None, as_json: Json = False
) -> None:
    """Remove requests from the dead letters; their events stay."""
    person = call.actor(by).user_id
    async with call.backend() as backend:

        async def act(letter: DeadLetter) -> str:
            await backend.client.purge(letter.id, flow=letter.flow, by=person)
            return "purged"

        letters = await _chosen(backend, choice)
        await _act_on_all(letters, act, dry_run=choice.dry_run, as_json=as_json)


async def _chosen(backend: Backend, choice: Choice) -> list[DeadLetter]:
    one, flow, reason = choice.request_id, choice.flow, choice.reason
    if choice.every == (one is not None) or (one is not None and (flow or reason)):
        raise typer.BadParameter("name one ID, or say --all, with --flow and --reason to choose")
    if one is not None:
        return [await _letter(backend, one)]
    await backend.warn_of_lag()
    found = backend.client.dead_letters(flow=flow, reason=reason, limit=MANY)
    return [letter async for letter in found]


async def _letter(backend: Backend, named: str) -> DeadLetter:
    request = await backend.request(named)
    return await backend.client.dead_letter(request.id, flow=request.flow)


async def _act_on_all(letters: list[DeadLetter], act: Act, *, dry_run: bool, as_json: bool) -> None:
    """Act on each; a refusal does not stop the others."""
    if not letters:
        tell("no dead letters")
    refused = 0
    rows = []
    for letter in letters:
        result, fault = "dry run", ""
        if not dry_run:
            try:
                result = await act(letter)
            except Refused as error:
                result, fault, refused = "refused", str(error), refused + 1
        rows.append((letter.id, letter.flow, result, fault))
    if as_json:
        print_list(
            {"id": one, "flow": flow, "result": result.replace(" ", "_"), "error": fault or None}
            for one, flow, result, fault in rows
        )
    elif rows:
        show(table(("id", "flow", "result", "why"), rows, folded=("why",)))
    if refused:
        tell(f"{refused} of {len(letters)} were refused")
        raise typer.Exit(FAILED)


def _show(letters: list[DeadLetter]) -> None:
    from gesta.admin.wording import count_of, joined

    rows = [
        (
            letter.id,
            letter.flow,
            letter.failure.at[:16].replace("T", " "),
            letter.key or "",
            joined(
                letter.failure.reason,
                letter.failure.detail or "",
                count_of(letter.failure.attempts, "attempt"),
            ),
        )
        for letter in letters
    ]
    show(table(("id", "flow", "failed (UTC)", "key", "why"), rows, folded=("key", "why")))
