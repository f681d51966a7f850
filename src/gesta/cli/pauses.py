"""pause and resume: hold the requests of a flow, a tenant or a credential, and release them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.invocation import By, Invocation
from gesta.cli.output import Json, print_answer, print_items
from gesta.domain.events import Actor
from gesta.domain.hold_words import hold_words
from gesta.errors import BadInput, NotFound

if TYPE_CHECKING:
    from gesta.admin.wording import Target
    from gesta.api_types.admin import PauseRepresentation
    from gesta.cli.backend import Backend
    from gesta.engine.engine import Engine
    from gesta.tenants.pauses import Scope

OfFlow = Annotated[
    str | None,
    typer.Option("--flow", metavar="FLOW", help="A flow, of all tenants or with --tenant of one."),
]
OfCredential = Annotated[
    str | None,
    typer.Option(
        "--credential",
        metavar="KIND/CODE",
        help="Requests that use this credential, e.g. webhook.endpoint/shop.",
    ),
]
Listed = Annotated[
    bool,
    typer.Option(
        "--list",
        help=("Show what is paused, and pause nothing."),
    ),
]
#: A list, so that more words can be explained.
Flow = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FLOW]",
        help="A flow; the same as --flow FLOW. For a tenant write --tenant NAME.",
    ),
]
#: What people write as words and gesta takes as options.
AS_OPTIONS = {
    "flow": "--flow FLOW",
    "tenant": "--tenant NAME",
    "credential": "--credential KIND/CODE",
}
Everything = Annotated[bool, typer.Option("--everything", help="All flows of all tenants.")]


@dataclass(frozen=True)
class Choice:
    """What a pause covers."""

    named: Flow = None
    of_flow: OfFlow = None
    credential: OfCredential = None
    everything: Everything = False

    @property
    def flow(self) -> str | None:
        """The flow, named with or without the option."""
        if not self.named:
            return self.of_flow
        word, *more = self.named
        if more or word in AS_OPTIONS:
            option = AS_OPTIONS.get(word)
            meant = "" if option is None else f"write {' '.join([option.split()[0], *more])}; "
            raise typer.BadParameter(
                f"{meant}FLOW is one flow, and everything else is named by an option:"
                f" {', '.join(AS_OPTIONS.values())}, --everything"
            )
        if self.of_flow is not None:
            raise typer.BadParameter("name the flow once: FLOW or --flow FLOW")
        return word


async def pause(
    call: Invocation,
    choice: Choice,
    listed: Listed = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, shown with the pause.")
    ] = "",
    by: By = None,
    as_json: Json = False,
) -> None:
    """Pause a flow, tenant or credential: requests wait until it is resumed.

    --flow alone pauses the flow of all tenants; with --tenant NAME, that of one tenant.

    Without options, or with --list, show the pauses that cover all tenants, and the pauses of each
    tenant that has held jobs. `--list --tenant NAME` shows the pauses of one tenant, also without
    held jobs.
    """
    flow, credential, everything = choice.flow, choice.credential, choice.everything
    if listed and (flow is not None or credential is not None or everything or reason):
        raise typer.BadParameter(
            "--list only shows pauses; leave --flow, --credential, --everything and --reason out"
        )
    tenant = None if listed else _tenant(call, flow, credential, everything=everything)
    is_asked = flow is None and credential is None and tenant is None and not everything
    person = call.actor(by).user_id
    async with call.backend(create=not is_asked) as backend:
        if is_asked:
            await _list(backend, call.place, as_json=as_json)
            return
        if flow is not None and backend.engine is not None:
            await _refuse_unknown(await backend.store("--flow"), flow)
        if tenant is None:
            made = await _pause_all_tenants(backend, flow, reason, person)
        else:
            made = await backend.client.pause(
                flow=flow, credential=credential, reason=reason, by=person
            )
        note = (
            f"{hold_words(made.scope)} is paused: running attempts continue, no new one begins;"
            " requests are accepted"
        )
        print_answer(made, made.scope, note, as_json=as_json)


async def resume(
    call: Invocation,
    choice: Choice,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Resume a flow, tenant or credential. `gesta doctor` shows the command for each pause.

    --flow alone ends the pause of all tenants; with --tenant NAME, that of one tenant.
    """
    from gesta.tenants.pauses import EVERYTHING, Scope

    flow, credential, everything = choice.flow, choice.credential, choice.everything
    tenant = _tenant(call, flow, credential, everything=everything)
    if Scope(flow, tenant, credential) == EVERYTHING and not everything:
        shown = call.place.command("pause --list")
        raise BadInput(
            f"name what to resume: --flow, --tenant, --credential or --everything; `{shown}` shows"
            " what is paused"
        )
    person = call.actor(by).user_id
    async with call.backend() as backend:
        try:
            if tenant is None:
                held = await _resume_all_tenants(backend, flow, person)
            else:
                held = await backend.client.resume(flow=flow, credential=credential, by=person)
        except NotFound:
            raise await _not_paused(backend, Scope(flow, tenant, credential), call.place) from None
        note = "held jobs continue" if held else "resumed; no job was held"
        print_answer({"held": held}, str(held), note, as_json=as_json)


async def _pause_all_tenants(
    backend: Backend, flow: str | None, reason: str, person: str
) -> PauseRepresentation:
    from gesta.admin.representations import pause_representation

    admin = (await backend.store(_everybodys(backend, flow))).admin
    if flow is None:
        return pause_representation(await admin.pause_everything(reason, Actor(person)), 0)
    made = await admin.pause(flow=flow, reason=reason, actor=Actor(person))
    return pause_representation(made, 0)


async def _resume_all_tenants(backend: Backend, flow: str | None, person: str) -> int:

    admin = (await backend.store(_everybodys(backend, flow))).admin
    if flow is None:
        return await admin.resume_everything(Actor(person))
    return await admin.resume(flow=flow, actor=Actor(person))


def _everybodys(backend: Backend, flow: str | None) -> str:
    """The option that a server refuses, and the alternative."""
    if flow is None:
        return "--everything"
    return f"--flow of every tenant (name yours with --tenant {backend.tenant})"


async def _refuse_unknown(engine: Engine, flow: str) -> None:
    """Pausing a misspelt flow would leave the intended one running."""
    from gesta.cli.flows import how_to_get

    known = {*engine.flows, *(name for name, _ in await engine.admin.counts())}
    if flow not in known:
        raise BadInput(
            f"no flow {flow!r} is declared here, and no request of it is stored; known:"
            f" {', '.join(sorted(known))}. Nothing was paused. If it is right,"
            f" {how_to_get(flow, engine.settings)}"
        )


def _tenant(
    call: Invocation, flow: str | None, credential: str | None, *, everything: bool
) -> str | None:
    """Whose: a credential is always some tenant's, a flow everybody's unless a tenant was chosen,
    and a tenant itself is named here.
    """
    if everything:
        if flow is not None or credential is not None or call.tenant is not None:
            raise typer.BadParameter(
                "--everything covers all flows and tenants; leave out --flow, --credential and"
                " --tenant"
            )
        return None
    if (
        credential is None
        and call.tenant is None
        and (flow is None or call.settings.sources["tenant"] == "default")
    ):
        return None
    return call.tenant_name


async def _not_paused(backend: Backend, scope: Scope, place: Target) -> NotFound:
    """The error for a name that is not paused, with the pauses that exist."""
    from gesta.admin.doctor.explain import how_to_resume
    from gesta.tenants.pauses import Scope

    found = [one for one in await backend.client.pauses() if one.tenant in (None, backend.tenant)]
    named = [
        f"{one.scope} ({how_to_resume(Scope(one.flow, one.tenant, one.credential), place)})"
        for one in found
    ]
    more = (
        f"paused: {', '.join(named)}"
        if named
        else f"nothing is paused for all tenants or for tenant {backend.tenant}"
    )
    return NotFound("pause", str(scope), f"; {more}")


async def _list(backend: Backend, place: Target, *, as_json: bool) -> None:
    from gesta.admin.wording import moment, ms_of

    found = await backend.client.pauses()
    print_items(
        found,
        ("paused", "since (UTC)", "by", "reason", "held"),
        lambda one: (
            hold_words(one.scope),
            moment(ms_of(one.since)),
            one.by or "",
            one.reason or "",
            str(one.held),
        ),
        folded=("paused", "by", "reason"),
        nothing=f"nothing is paused for all tenants or for tenant {backend.tenant}, and no jobs are"
        f" held; of another tenant: {place.process('pause --list --tenant NAME')}",
        as_json=as_json,
    )
