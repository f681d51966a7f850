"""dlq inbound, dlq redrive-inbound: dead letters of the queue that inbound events pass through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_items, print_list, tell
from gesta.errors import BadInput

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.intake.inbound.boundary_dead_letters import BoundaryDeadLetters

OfError = Annotated[
    str | None, typer.Option("--error", metavar="TYPE", help="Dead letters with this errorType.")
]


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
    message_id: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="A messageId; or --all.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters that match.")] = False,
    error: OfError = None,
    per_second: Annotated[
        float, typer.Option(min=0.1, max=1000.0, metavar="N", help="At most this many per second.")
    ] = 10.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which ones it would redrive.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Send dead letters of the inbound queue back to it, each with one more retry."""
    from gesta.intake.inbound.boundary_dead_letters import Choice

    if (message_id is None) != every:
        raise BadInput("name one MESSAGE, or --all with or without --error")
    choice = Choice(frozenset() if message_id is None else frozenset({message_id}), error)
    done = []
    async with call.opened() as engine:
        run = _letters_of(engine).redrive(
            choice, actor=call.actor(by), per_second=per_second, dry_run=dry_run
        )
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
