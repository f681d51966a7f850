"""key: API keys of a tenant. A key is printed once, alone on stdout, so that KEY=$(gesta key create) has it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.arguments import duration
from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, JsonLines, print_json, print_json_line, say, show, table, tell

if TYPE_CHECKING:
    from gesta.access import ApiKey


async def create(
    call: Invocation,
    name: Annotated[str, typer.Option(help="What it is for, for those who find it in the list.")] = "made by gesta key create",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="read, submit, execute, operate or admin, which allows all; may be given several times. Without it: read and submit.",
        ),
    ] = None,
    expires: Annotated[
        timedelta | None, typer.Option(parser=duration, metavar="DURATION", help="Ends by itself after 12h, 90d; else never.")
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="What it submits reaches the sandbox and nobody else.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Make an API key of the tenant and print it, this once: KEY=$(gesta key create --scope submit)."""
    from datetime import UTC, datetime

    from gesta.cli.records import key_record
    from gesta.errors import BadInput

    tenant = call.tenant_name
    async with call.opened(create=True) as engine:
        try:
            now = datetime.fromtimestamp(engine.road.runtime.now_ms() / 1000, UTC)
            expires_at = None if expires is None else now + expires
        except OverflowError:
            raise BadInput("--expires is beyond every calendar; leave it out for a key that does not end by itself") from None
        made, text = await engine.operating.create_key(
            name=name,
            scopes=scope or ("read", "submit"),
            expires_at=expires_at,
            test=test,
            tenant=tenant,
            actor=call.actor(by),
        )
        if as_json:
            print_json({**key_record(made), "key": text})
            return
        say(text)
        tell(f"{_described(made)}; it is not shown again. End it with: gesta key revoke {made.id}")


async def list_keys(call: Invocation, as_json: JsonLines = False) -> None:
    """List the tenant's API keys, without their texts."""
    from gesta.cli.records import key_record
    from gesta.cli.wording import moment

    async with call.opened() as engine:
        keys = await engine.operating.list_keys(call.tenant_name)
        if as_json:
            for one in keys:
                print_json_line(key_record(one))
        elif keys:
            now = engine.road.runtime.now_ms()
            rows = [
                (
                    one.id,
                    one.name,
                    ", ".join(one.scopes) + (" (test)" if one.is_test else ""),
                    moment(one.created_ms),
                    one.created_by,
                    "" if one.expires_ms is None else moment(one.expires_ms),
                    _standing(one, now),
                )
                for one in keys
            ]
            columns = ("id", "name", "scopes", "made (UTC)", "by", "expires (UTC)", "")
            show(table(columns, rows, folded=("name", "scopes", "by")))
        else:
            tell("no API keys yet; make one with: gesta key create")


async def revoke(
    call: Invocation,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `gesta key list` shows it.")],
    by: By = None,
    as_json: Json = False,
) -> None:
    """End an API key for good."""
    from gesta.cli.records import key_record

    async with call.opened() as engine:
        ended = await engine.operating.revoke_key(key_id, tenant=call.tenant_name, actor=call.actor(by))
        if as_json:
            print_json(key_record(ended))
        else:
            say(ended.id)
            tell("revoked; within a second it opens nothing anywhere")


def _described(key: ApiKey) -> str:
    from gesta.cli.wording import moment

    kind = "a test key" if key.is_test else "a key"
    ends = "" if key.expires_ms is None else f", until {moment(key.expires_ms)}"
    return f"{kind} of tenant {key.tenant} with {', '.join(key.scopes)}{ends}"


def _standing(key: ApiKey, now_ms: int) -> str:
    if key.revoked_ms is not None:
        return f"revoked by {key.revoked_by}"
    return "" if key.counts(now_ms) else "expired"
