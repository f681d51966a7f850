"""pause and resume: begin nothing more of a flow, a tenant or a credential, and go on again; on record with who decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_json, say, show, table, tell

if TYPE_CHECKING:
    from gesta.engine import Engine

OfFlow = Annotated[str | None, typer.Option("--flow", help="A flow: of every tenant, or with --tenant of that one.")]
OfCredential = Annotated[
    str | None,
    typer.Option("--credential", metavar="KIND/CODE", help="What uses this config of the tenant, e.g. webhook.endpoint/shop."),
]
Everything = Annotated[bool, typer.Option("--everything", help="All flows of all tenants.")]


async def pause(
    call: Invocation,
    flow: OfFlow = None,
    credential: OfCredential = None,
    everything: Everything = False,
    reason: Annotated[str, typer.Option(help="Why, for those who find it paused.")] = "",
    by: By = None,
    as_json: Json = False,
) -> None:
    """Begin nothing more of a flow, a --tenant or a credential; requests wait. Without any of these, show what is paused."""
    tenant = _tenant(call, flow, credential, everything=everything)
    is_asked = flow is None and credential is None and tenant is None and not everything
    async with call.opened(create=not is_asked) as engine:
        if is_asked:
            await _list(engine, call.tenant_name, as_json=as_json)
            return
        if everything:
            made = await engine.operating.pause_everything(reason, call.actor(by))
        else:
            made = await engine.operating.pause(
                flow=flow, tenant=tenant, credential=credential, reason=reason, actor=call.actor(by)
            )
        if as_json:
            from gesta.cli.records import pause_record

            print_json(pause_record(made, 0))
        else:
            say(str(made.scope))
            tell("paused: running attempts go on, nothing else begins; requests are accepted and wait")


async def resume(
    call: Invocation,
    flow: OfFlow = None,
    credential: OfCredential = None,
    everything: Everything = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Let something that is paused go on."""
    tenant = _tenant(call, flow, credential, everything=everything)
    async with call.opened() as engine:
        if everything:
            held = await engine.operating.resume_everything(call.actor(by))
        else:
            held = await engine.operating.resume(flow=flow, tenant=tenant, credential=credential, actor=call.actor(by))
        if as_json:
            print_json({"held": held})
        else:
            say(str(held))
            tell("jobs were held and go on")


def _tenant(call: Invocation, flow: str | None, credential: str | None, *, everything: bool) -> str | None:
    """Whose: a credential is always some tenant's, a flow everybody's unless a tenant was chosen, and a tenant itself is named here."""
    if everything:
        if flow is not None or credential is not None or call.tenant is not None:
            raise typer.BadParameter("--everything leaves nothing to choose; leave --flow, --credential and --tenant out")
        return None
    if credential is None and call.tenant is None and (flow is None or call.settings.sources["tenant"] == "default"):
        return None
    return call.tenant_name


async def _list(engine: Engine, tenant: str, *, as_json: bool) -> None:
    from gesta.cli.records import pause_record
    from gesta.cli.wording import moment

    operating = engine.operating
    # Those of a tenant without held jobs are known only to who asks for that tenant.
    found = {str(pause.scope): pause for pause in (*await operating.paused(), *await operating.paused(tenant))}
    held = await operating.held()
    records = [
        pause_record(pause, sum(one.count for one in held if one.scope == scope)) for scope, pause in sorted(found.items())
    ]
    if as_json:
        print_json(records)
    elif records:
        rows = [
            (one["scope"], moment(found[one["scope"]].since_ms), one["by"], one["reason"], str(one["held"])) for one in records
        ]
        show(table(("paused", "since (UTC)", "by", "reason", "held"), rows, folded=("paused", "by", "reason")))
    else:
        tell("nothing is paused for everybody, and no tenant's jobs are held; `gesta doctor ID --tenant T` tells of one request")
