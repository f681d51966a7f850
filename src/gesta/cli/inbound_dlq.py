"""dlq inbound, redrive-inbound, purge-inbound: dead letters of the queue of inbound events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_items, print_list, tell
from gesta.errors import BadInput

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.intake.inbound.boundary_dead_letters import BoundaryDeadLetters, Choice, Redriven

OfError = Annotated[
    str | None, typer.Option("--error", metavar="TYPE", help="Dead letters with this errorType.")
]
OneMessage = Annotated[str | None, typer.Argument(metavar="MESSAGE", help="A messageId; or --all.")]
Every = Annotated[bool, typer.Option("--all", help="All dead letters that match.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which ones it would redrive.")]


async def list_inbound(call: Invocation, error: OfError = None, as_json: Json = False) -> None:
    """List dead letters of the inbound queue (`inbound_queue_url`), oldest first."""
    from gesta.intake.inbound.boundary_dead_letters import Choice

    async with call.opened() as engine:
        letters = await _letters_of(engine).letters(Choice(error_type=error))
    print_items(
        letters,
        ("message", "shape", "since (UTC)", "attempts", "receives", "redriven", "error"),
        lambda one: (
            one.message_id,
            one.shape,
            one.since[:16].replace("T", " "),
            str(one.attempt_count),
            str(one.receive_count),
            str(one.retry_count),
            f"{one.error_type}: {one.error_message}" if one.error_type else "",
        ),
        folded=("error",),
        nothing="no dead letters",
        as_json=as_json,
    )


async def redrive_inbound(
    call: Invocation,
    message_id: OneMessage = None,
    every: Every = False,
    error: OfError = None,
    per_second: Annotated[
        float, typer.Option(min=0.1, max=1000.0, metavar="N", help="At most this many per second.")
    ] = 10.0,
    dry_run: DryRun = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Send dead letters of the inbound queue back to it, each with one more retry."""
    choice = _choice(message_id, error, every=every)
    async with call.opened() as engine:
        run = _letters_of(engine).redrive(
            choice, actor=call.actor(by), per_second=per_second, dry_run=dry_run
        )
        await _show(run, as_json=as_json)


async def purge_inbound(
    call: Invocation,
    message_id: OneMessage = None,
    every: Every = False,
    error: OfError = None,
    dry_run: DryRun = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Delete dead letters of the inbound queue, readable or not."""
    choice = _choice(message_id, error, every=every)
    async with call.opened() as engine:
        run = _letters_of(engine).purge(choice, actor=call.actor(by), dry_run=dry_run)
        await _show(run, as_json=as_json)


def _choice(message_id: str | None, error: str | None, *, every: bool) -> Choice:
    from gesta.intake.inbound.boundary_dead_letters import Choice

    if (message_id is None) != every:
        raise BadInput("name one MESSAGE, or --all with or without --error")
    return Choice(frozenset() if message_id is None else frozenset({message_id}), error)


async def _show(run: AsyncIterator[Redriven], *, as_json: bool) -> None:
    done = []
    async for one in run:
        done.append(one)
        if not as_json:
            word = one.result.replace("_", " ")
            tell(f"{one.number} of {one.total}: {one.letter.message_id} {word}")
    if as_json:
        print_list(done)
    elif not done:
        tell("no dead letters")


def _letters_of(engine: Engine) -> BoundaryDeadLetters:
    letters = engine.pipeline.boundary_dead_letters
    if letters is None:
        raise BadInput("inbound_queue_url is not set, so there is no queue for inbound events")
    return letters
