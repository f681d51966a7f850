"""retry, cancel, redrive, resolve: what a person decides about a request, on record with who
decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import Ttl
from gesta.cli.invocation import By, Invocation
from gesta.cli.lookup import Id, id_of
from gesta.cli.output import Json, print_json, say, tell

if TYPE_CHECKING:
    from gesta.cli.backend import Backend, Resolution

Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Force a new intent although an attempt may have had its effect: it may happen twice.",
    ),
]


async def retry(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Make the next attempt of a waiting request due now, under the same key."""
    async with call.backend() as backend:
        request_id = await id_of(backend, request_id)
        status = await backend.retry(request_id, call.actor(by).user_id)
        await _tell(backend, request_id, status, "its next attempt is due now", as_json=as_json)


async def cancel(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Call a request back. While an attempt runs, its end decides: a success stays."""
    async with call.backend() as backend:
        request_id = await id_of(backend, request_id)
        status = await backend.cancel(request_id, call.actor(by).user_id)
        done = (
            "it will not be executed"
            if status == "cancelled"
            else "an attempt is running: a success stays, anything else is cancelled"
        )
        await _tell(backend, request_id, status, done, as_json=as_json)


async def redrive(
    call: Invocation,
    request_id: Id,
    again: Again = False,
    ttl: Ttl = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Execute a request again that is failed, expired, cancelled or in doubt, with a fresh budget
    of attempts.

    It is due at once, whatever --deliver-at said, and has no time to live unless --ttl gives one.
    """
    async with call.backend() as backend:
        request_id = await id_of(backend, request_id)
        status = await backend.redrive(request_id, ttl, again, call.actor(by).user_id)
        await _tell(backend, request_id, status, "it is executed now", as_json=as_json)


async def resolve(
    call: Invocation,
    request_id: Id,
    evidence: Annotated[
        str, typer.Option(help="How you know, e.g. what the provider's own records show.")
    ],
    executed: Annotated[bool, typer.Option("--executed", help="The effect happened.")] = False,
    not_executed: Annotated[
        bool, typer.Option("--not-executed", help="It did not; it is tried again.")
    ] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="It did not and never will.")
    ] = False,
    provider_id: Annotated[str, typer.Option(help="The provider's own name for what it did.")] = "",
    by: By = None,
    as_json: Json = False,
) -> None:
    """End the doubt about an `unknown` outcome by your word."""
    if executed + not_executed + rejected != 1:
        raise typer.BadParameter("say exactly one of --executed, --not-executed and --rejected")
    if not evidence.strip():
        raise typer.BadParameter("say how you know", param_hint="--evidence")
    result: Resolution = "executed" if executed else "rejected" if rejected else "not_executed"
    person = call.actor(by).user_id
    async with call.backend() as backend:
        request_id = await id_of(backend, request_id)
        status = await backend.resolve(request_id, result, evidence, provider_id, person)
        then = "; it is executed again" if status == "queued" else ""
        await _tell(
            backend,
            request_id,
            status,
            f"on record as {result.replace('_', ' ')} by {person}{then}",
            as_json=as_json,
        )


async def _tell(
    backend: Backend, request_id: str, status: str, what: str, *, as_json: bool
) -> None:
    if as_json:
        print_json({"id": request_id, "status": status})
    else:
        say(status)
        tell(what)
    if status == "queued":
        await backend.warn_if_idle()
