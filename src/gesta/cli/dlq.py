"""dlq: requests that failed for good, looked at, redriven and removed, one or many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import Ttl
from gesta.cli.decisions import Again
from gesta.cli.exit_codes import FAILED
from gesta.cli.idle import warn_if_idle, warn_of_lag
from gesta.cli.invocation import By, Invocation
from gesta.cli.lookup import Id
from gesta.cli.output import Json, JsonLines, facts, print_json, print_json_line, show, table, tell

if TYPE_CHECKING:
    from gesta.dead_letters import DeadLetter
    from gesta.engine import Engine
    from gesta.request import Request

#: More dead letters than anybody keeps; a bound, so that memory has one too.
MANY = 100_000

OneId = Annotated[str | None, typer.Argument(metavar="ID", help="One request's id; or --all.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters, or those that the filters leave.")]
OfFlow = Annotated[str | None, typer.Option("--flow", help="Only of this flow.")]
OfReason = Annotated[str | None, typer.Option("--reason", help="Only those that failed for this reason.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell which ones it would be.")]

Act = Callable[["Request"], Awaitable[str]]


async def list_letters(
    call: Invocation,
    flow: OfFlow = None,
    reason: OfReason = None,
    limit: Annotated[int, typer.Option(min=1, max=MANY, help="At most so many.")] = 20,
    as_json: JsonLines = False,
) -> None:
    """List requests that failed for good, newest first."""
    async with call.opened() as engine:
        await warn_of_lag(engine)
        letters = (await _chosen(engine, call.tenant_name, flow, reason))[:limit]
        if as_json:
            for letter in letters:
                print_json_line(letter)
        elif letters:
            _show(letters)
        else:
            tell("no dead letters")


async def show_letter(call: Invocation, request_id: Id, as_json: Json = False) -> None:
    """Show a dead letter: why it failed, how often it was tried, until when it is kept."""
    async with call.opened() as engine:
        letter = await engine.operating.dead_letter(request_id, call.tenant_name)
        if as_json:
            print_json(letter)
            return
        original, error, kept = letter.original, letter.error_info, letter.dlq_metadata
        show(
            facts(
                {
                    "request": original.request_id,
                    "flow": original.flow,
                    "key": original.key or "",
                    "reason": error.error_type,
                    "message": error.error_message,
                    "attempts": str(error.attempt_count),
                    "failed": kept.sent_to_dlq_at,
                    "kept until": kept.expires_at,
                    "stream": f"{original.stream} (version {original.version})",
                }
            )
        )
        tell(f"again: gesta dlq redrive {original.request_id}; its history: gesta show {original.request_id}")


async def redrive_letters(
    call: Invocation,
    request_id: OneId = None,
    every: All = False,
    flow: OfFlow = None,
    reason: OfReason = None,
    dry_run: DryRun = False,
    ttl: Ttl = None,
    again: Again = False,
    by: By = None,
    as_json: JsonLines = False,
) -> None:
    """Execute dead letters again, each with a fresh budget of attempts."""
    actor = call.actor(by)

    async def act(request: Request) -> str:
        return await request.redrive(ttl=ttl, again=again, actor=actor)

    async with call.opened() as engine:
        letters = await _named(engine, call.tenant_name, request_id, flow, reason, every=every)
        await _act_on_all(engine, letters, act, dry_run=dry_run, as_json=as_json)
        if not dry_run:
            await warn_if_idle(engine)


async def purge_letters(
    call: Invocation,
    request_id: OneId = None,
    every: All = False,
    flow: OfFlow = None,
    reason: OfReason = None,
    dry_run: DryRun = False,
    by: By = None,
    as_json: JsonLines = False,
) -> None:
    """Remove requests from the dead letters; their events stay."""
    actor = call.actor(by)

    async def act(request: Request) -> str:
        await request.purge(actor=actor)
        return "purged"

    async with call.opened() as engine:
        letters = await _named(engine, call.tenant_name, request_id, flow, reason, every=every)
        await _act_on_all(engine, letters, act, dry_run=dry_run, as_json=as_json)


async def _named(
    engine: Engine, tenant: str, request_id: str | None, flow: str | None, reason: str | None, *, every: bool
) -> list[DeadLetter]:
    """The letter of one id, or all that the filters leave."""
    if every == (request_id is not None) or (request_id is not None and (flow or reason)):
        raise typer.BadParameter("name one ID, or say --all, with --flow and --reason to choose")
    if request_id is not None:
        return [await engine.operating.dead_letter(request_id, tenant)]
    await warn_of_lag(engine)
    return await _chosen(engine, tenant, flow, reason)


async def _chosen(engine: Engine, tenant: str, flow: str | None, reason: str | None) -> list[DeadLetter]:
    letters = await engine.operating.dead_letters(tenant, flow, MANY)
    return [letter for letter in letters if reason in (None, letter.last_failure_reason)]


async def _act_on_all(engine: Engine, letters: list[DeadLetter], act: Act, *, dry_run: bool, as_json: bool) -> None:
    """Do it to each; one that is refused holds back no other."""
    from gesta.errors import Refused

    if not letters:
        tell("no dead letters")
        return
    refused = 0
    rows = []
    for letter in letters:
        result, fault = "dry run", ""
        if not dry_run:
            try:
                result = await act(engine.operating.request(letter))
            except Refused as error:
                result, fault, refused = "refused", str(error), refused + 1
        rows.append((letter.original.request_id, letter.original.flow, result, fault))
    if as_json:
        for one, flow, result, fault in rows:
            print_json_line({"id": one, "flow": flow, "result": result.replace(" ", "_"), "error": fault or None})
    else:
        show(table(("id", "flow", "result", "why"), rows, folded=("why",)))
    if refused:
        tell(f"{refused} of {len(letters)} were refused")
        raise typer.Exit(FAILED)


def _show(letters: list[DeadLetter]) -> None:
    from gesta.cli.wording import joined, tries

    rows = [
        (
            letter.original.request_id,
            letter.original.flow,
            letter.dlq_metadata.sent_to_dlq_at[:16].replace("T", " "),
            joined(letter.last_failure_reason, letter.error_info.error_message, tries(letter.error_info.attempt_count)),
        )
        for letter in letters
    ]
    show(table(("id", "flow", "failed (UTC)", "why"), rows, folded=("why",)))
