"""retry, cancel, redrive, resolve: what a person decides about a request, on record with who
decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gesta.cli.arguments import Id, Ttl
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_json, say, tell

if TYPE_CHECKING:
    from gesta.api_types.requests import Decided
    from gesta.cli.backend import Backend

Resolution = Literal["executed", "not_executed", "rejected"]
#: A resolution of the command line → the outcome that the API takes.
OUTCOMES: dict[Resolution, Literal["succeeded", "not_executed", "failed"]] = {
    "executed": "succeeded",
    "not_executed": "not_executed",
    "rejected": "failed",
}
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
        request = await backend.decidable(request_id)
        decided = await backend.client.retry(
            request.id, flow=request.flow, by=call.actor(by).user_id
        )
        await _tell(backend, decided, "its next attempt is due now", as_json=as_json)


async def cancel(call: Invocation, request_id: Id, by: By = None, as_json: Json = False) -> None:
    """Call a request back. While an attempt runs, its end decides: a success stays."""
    async with call.backend() as backend:
        request = await backend.decidable(request_id)
        decided = await backend.client.cancel(
            request.id, flow=request.flow, by=call.actor(by).user_id
        )
        done = (
            "it will not be executed"
            if decided.status == "cancelled"
            else "an attempt is running: a success stays, anything else is cancelled"
        )
        await _tell(backend, decided, done, as_json=as_json)


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
        request = await backend.decidable(request_id)
        decided = await backend.client.redrive(
            request.id, flow=request.flow, ttl=ttl, again=again, by=call.actor(by).user_id
        )
        await _tell(backend, decided, "it is executed now", as_json=as_json)


@dataclass(frozen=True)
class Finding:
    """What happened to a request whose outcome was unknown, and the evidence for it."""

    evidence: Annotated[
        str, typer.Option(metavar="TEXT", help="How you know, e.g. a line of the provider's log.")
    ]
    succeeded: Annotated[bool, typer.Option("--succeeded", help="The effect happened.")] = False
    not_executed: Annotated[
        bool, typer.Option("--not-executed", help="It did not happen; gesta tries again.")
    ] = False
    failed: Annotated[
        bool, typer.Option("--failed", help="It did not happen and must not be tried again.")
    ] = False
    provider_id: Annotated[
        str, typer.Option(metavar="ID", help="The provider's id of the effect.")
    ] = ""

    @property
    def result(self) -> Resolution:
        if self.succeeded + self.not_executed + self.failed != 1:
            raise typer.BadParameter("give exactly one of --succeeded, --not-executed and --failed")
        if not self.evidence.strip():
            raise typer.BadParameter("must not be empty", param_hint="--evidence")
        return "executed" if self.succeeded else "rejected" if self.failed else "not_executed"


async def resolve(
    call: Invocation, request_id: Id, finding: Finding, by: By = None, as_json: Json = False
) -> None:
    """Resolve a request whose outcome is unknown: record what happened and the evidence for it."""
    result = finding.result
    person = call.actor(by).user_id
    async with call.backend() as backend:
        request = await backend.decidable(request_id)
        decided = await backend.client.resolve(
            request.id,
            OUTCOMES[result],
            evidence=finding.evidence,
            provider_id=finding.provider_id or None,
            flow=request.flow,
            by=person,
        )
        then = "; gesta tries again" if decided.status == "queued" else ""
        await _tell(backend, decided, f"recorded: resolved by {person}{then}", as_json=as_json)


async def _tell(backend: Backend, decided: Decided, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": decided.id, "status": decided.status})
    else:
        say(decided.status)
        tell(what)
    if decided.status == "queued":
        await backend.warn_if_idle()
