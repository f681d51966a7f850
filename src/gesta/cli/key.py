"""key: API keys of a tenant. A new key is printed once, alone on stdout."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import duration
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_answer, print_items
from gesta.errors import BadInput

if TYPE_CHECKING:
    from gesta.api_types.keys import KeyRepresentation


async def create(
    call: Invocation,
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="What the key is for.")
    ] = "made by gesta key create",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help=(
                "read, submit, execute, operate or admin, which allows all; may be given several"
                " times. Without it: read and submit."
            ),
        ),
    ] = None,
    expires: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="DURATION",
            help="Expires after this time, e.g. 12h or 90d. Default: never.",
        ),
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Its requests go to the sandbox, not to a provider.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Create an API key and print it once: KEY=$(gesta key create --scope submit)."""
    from datetime import UTC, datetime

    async with call.backend(create=True) as backend:
        try:
            now = datetime.fromtimestamp(backend.now_ms() / 1000, UTC)
            expires_at = None if expires is None else now + expires
        except OverflowError:
            raise BadInput(
                "--expires is too far in the future; leave it out for a key that does not expire"
            ) from None
        made = await backend.client.create_key(
            name,
            scopes=scope or ("read", "submit"),
            expires_at=expires_at,
            test=test,
            by=call.actor(by).user_id,
        )
        note = (
            f"{_described(made)}; it is not shown again. Revoke it with:"
            f" {call.place.command(f'key revoke {made.id}')}"
        )
        print_answer(made, made.key, note, as_json=as_json)


async def list_keys(call: Invocation, as_json: Json = False) -> None:
    """List the API keys of the tenant, without the secret."""
    from gesta.admin.wording import moment, ms_of

    async with call.backend() as backend:
        keys = await backend.client.keys()
        now = backend.now_ms()
        print_items(
            keys,
            ("id", "name", "scopes", "made (UTC)", "by", "expires (UTC)", ""),
            lambda one: (
                one.id,
                one.name,
                ", ".join(one.scopes) + (" (test)" if one.test else ""),
                moment(ms_of(one.created_at)),
                one.created_by or "",
                "" if one.expires_at is None else moment(ms_of(one.expires_at)),
                _standing(one, now),
            ),
            folded=("name", "scopes", "by"),
            nothing=f"no API keys yet; make one with: {call.place.command('key create')}",
            as_json=as_json,
        )


async def revoke(
    call: Invocation,
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="The key's id, as `gesta key list` shows it.")
    ],
    by: By = None,
    as_json: Json = False,
) -> None:
    """Revoke an API key permanently."""
    async with call.backend() as backend:
        ended = await backend.client.revoke_key(key_id, by=call.actor(by).user_id)
        note = "revoked; within a second every process refuses it"
        print_answer(ended, ended.id, note, as_json=as_json)


def _described(key: KeyRepresentation) -> str:
    from gesta.admin.wording import moment, ms_of

    kind = "a test key" if key.test else "a key"
    ends = "" if key.expires_at is None else f", until {moment(ms_of(key.expires_at))}"
    return f"{kind} of tenant {key.tenant} with {', '.join(key.scopes)}{ends}"


def _standing(key: KeyRepresentation, now_ms: int) -> str:
    from gesta.admin.wording import ms_of

    if key.revoked_at is not None:
        return f"revoked by {key.revoked_by}"
    return "expired" if key.expires_at is not None and ms_of(key.expires_at) <= now_ms else ""
