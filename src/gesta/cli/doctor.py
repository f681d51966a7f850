"""doctor: checks a store and its processes, and explains why a request was not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gesta.cli.command import FAILED, exit_code
from gesta.cli.invocation import Invocation
from gesta.cli.output import Json, print_answer, print_list, show, table, tell
from gesta.errors import GestaError

if TYPE_CHECKING:
    from gesta.admin.doctor.checks import Finding
    from gesta.engine.engine import Engine

MaybeId = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]", help="A request, by its id or key: why has it not been sent yet?"
    ),
]
Jobs = Annotated[
    bool,
    typer.Option(
        "--jobs",
        help="Search jobs for secrets and other data that is not a pointer; on Redis also a sample"
        " of finished jobs and of Node services' jobs.",
    ),
]


async def doctor(
    call: Invocation, request_id: MaybeId = None, jobs: Jobs = False, as_json: Json = False
) -> None:
    """Check the store and the processes that work on it.

    Exits with 1 if there is an error, and with 0 if there are only warnings.

    Exits with 6 if the store cannot be opened: it does not exist, the file is not a store, or the
    master key does not open it. Exits with 2 for an invalid setting, such as a malformed master
    key.
    """
    from gesta.admin.doctor.checks import Finding, diagnose
    from gesta.admin.doctor.collect import examine

    call.refuse_server()
    try:
        async with call.opened() as engine:
            if request_id is not None:
                await _tell_why(engine, request_id, call, as_json=as_json)
                return
            if jobs:
                findings = await _search_jobs(engine)
            else:
                findings = diagnose(await examine(engine.pipeline, call.tenant_name, call.place))
    except GestaError as error:
        if request_id is not None or call.debug:
            raise
        _print([Finding("bad", "store", str(error))], as_json=as_json)
        raise typer.Exit(exit_code(error)) from None
    _print(findings, as_json=as_json)
    if any(one.level == "bad" for one in findings):
        raise typer.Exit(FAILED)


async def _tell_why(engine: Engine, request_id: str, call: Invocation, *, as_json: bool) -> None:
    from gesta.admin.doctor.collect import examine_request
    from gesta.admin.doctor.explain import why_not_sent
    from gesta.cli.backend import find_view

    view = await find_view(engine, request_id, call.tenant_name)
    state, sentence = (
        view.state,
        why_not_sent(await examine_request(engine.pipeline, view, call.place)),
    )
    document = {"id": state.id, "status": state.status, "why": sentence}
    print_answer(document, f"{state.status}: {sentence}", as_json=as_json)


async def _search_jobs(engine: Engine) -> list[Finding]:
    from gesta.admin.doctor.checks import Finding
    from gesta.admin.doctor.collect import sampled_jobs, suspicious_jobs
    from gesta.admin.doctor.job_texts import job_findings

    sampled = await sampled_jobs(engine.pipeline)
    found = job_findings(sampled)
    count = 0
    async for standing, fields in suspicious_jobs(engine.pipeline):
        count += 1
        if fields:
            # The id itself may be the unwanted data, so only its place is named.
            what = f"job {count} in the queue contains more than a pointer, in: {', '.join(fields)}"
            found.append(
                Finding(
                    "bad",
                    f"job of {standing.job.flow if 'flow' not in fields else 'no flow'}",
                    what,
                    "find out which program wrote it",
                )
            )
    if any(one.level == "bad" for one in found):
        return found
    looked = f"; searched {len(sampled)} of all states for secrets" if sampled else ""
    return [*found, Finding("ok", "jobs", f"{count} live, all of them pointers{looked}")]


def _print(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        print_list(findings)
        return
    rows = [(one.level, one.about, one.status, one.action) for one in findings]
    show(table(("", "", "Status", "Action"), rows, folded=("Status", "Action")))
    bad, warnings = (sum(one.level == level for one in findings) for level in ("bad", "warn"))
    tell(f"{bad} bad, {warnings} warnings" if bad or warnings else "all is well")
