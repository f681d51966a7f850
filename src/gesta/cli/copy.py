"""copy: a store, or one tenant, into another store. Repeat the command to continue it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gesta.cli.arguments import duration
from gesta.cli.invocation import By, Invocation, refuse_missing_file, tell_of_odd_variables
from gesta.cli.output import Json, print_answer, progress_bar, tell
from gesta.errors import NotFound, WrongMasterKey
from gesta.runtime.redaction import scrub

#: The settings that name further databases of a store.
PARTS = ("events_url", "views_url", "queue_url", "vault_url")

if TYPE_CHECKING:
    from gesta.maintenance.store_copy.copy import CopyReport
    from gesta.maintenance.store_copy.plan import Home
    from gesta.ports.stores import Stores
    from gesta.runtime.clock import Runtime
    from gesta.runtime.settings import Settings

From = Annotated[
    str | None,
    typer.Option("--from", metavar="URL", help="The store to copy. Default: the setting url."),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="URL", help="The store to copy into: a new one.")
]
ToSet = Annotated[
    list[str] | None,
    typer.Option(
        "--to-set",
        metavar="NAME=URL",
        help="A database of the target: events_url, views_url, queue_url, vault_url. Repeatable.",
    ),
]
Wait = Annotated[
    timedelta | None,
    typer.Option(
        "--wait",
        parser=duration,
        metavar="DURATION",
        help="How long to wait for running attempts before the fence.",
    ),
]
Unfence = Annotated[
    bool, typer.Option("--unfence", help="Instead of copying, allow writes to the source again.")
]


async def copy(
    call: Invocation,
    source: From = None,
    to: To = None,
    to_set: ToSet = None,
    wait: Wait = None,
    unfence: Unfence = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Copy a store into another, e.g. SQLite into PostgreSQL; with --tenant, that tenant alone.

    If the parts of a store are in several databases, the settings name those of the source, and
    --to-set those of the target.

    If it is interrupted, run it again.

    The source stays in use until the end; then it refuses writes. The target starts paused, and
    nothing is sent twice.
    """
    from gesta.maintenance.store_copy.plan import check_used
    from gesta.runtime.clock import SystemRuntime

    if source is None:
        call.refuse_server()
    settings = (
        call.settings
        if source in (None, call.settings.url)
        else replace(call.settings, url=source, **_no_parts())
    )
    refuse_missing_file(settings)
    tell_of_odd_variables()
    tenant = call.tenant_name if call.tenant is not None else None
    runtime = SystemRuntime()
    if unfence:
        await _unfence(settings, tenant, runtime)
        return
    if to is None:
        raise typer.BadParameter("name the target: gesta copy --from URL --to URL")
    target = _target(settings, to, to_set or [])
    async with _opened(settings, runtime) as giving, _opened(target, runtime) as taking:
        if giving.url == taking.url:
            raise typer.BadParameter("--from and --to are the same store")
        await check_used(giving)
        key = await _same_key(settings, giving, taking, runtime)
        report = await _copied(call, giving, taking, tenant, wait or timedelta(0), by, runtime)
    document = {
        "new": report.is_new,
        "events": report.events,
        "claims": report.claims,
        "secrets": report.secrets,
        "jobs": report.jobs,
        "storedJobs": report.stored_jobs,
        "possiblyExecuted": report.possibly_executed,
        "from": giving.url,
        "to": taking.url,
        "tenant": tenant,
    }
    print_answer(document, str(report.events), as_json=as_json)
    _tell_what_is_next(report, taking, tenant, key)
    for name in PARTS:
        if (url := getattr(target, name)) is not None:
            tell(f"  with GESTA_{name.upper()}={scrub(url)} as well")


def _target(settings: Settings, to: str, to_set: list[str]) -> Settings:
    """The settings of the store to copy into. None of its databases may belong to the source."""
    parts = _no_parts()
    for one in to_set:
        name, _, url = one.partition("=")
        if name not in PARTS or not url:
            raise typer.BadParameter(
                f"--to-set {scrub(one)}: write NAME=URL, where NAME is one of {', '.join(PARTS)}"
            )
        parts[name] = url
    target = replace(settings, url=to, **parts)
    shared = {_place(one) for one in settings.databases.items()} & {
        _place(one) for one in target.databases.items()
    }
    if shared or {settings.url} & {*target.databases.values()}:
        raise typer.BadParameter("--from and --to are the same store, or share a database")
    return target


def _no_parts() -> dict[str, Any]:
    return dict.fromkeys(PARTS)


def _place(part: tuple[str, str]) -> tuple[str, str]:
    """Views on Redis have fixed keys; a prefix in the URL does not change them."""
    name, url = part
    return name, url.partition("?")[0] if name == "views" and "redis" in url[:6] else url


@asynccontextmanager
async def _opened(settings: Settings, runtime: Runtime) -> AsyncIterator[Home]:
    from gesta.engine.environment import open_ports
    from gesta.maintenance.store_copy.plan import Home

    stores = await open_ports(settings, runtime)
    try:
        yield Home(stores, _whole_url(settings.url, stores))
    finally:
        await stores.close()


def _whole_url(url: str, stores: Stores) -> str:
    """With the whole path of a file, so that it is the same store wherever the command is repeated;
    without a password.
    """
    return (
        f"{url.partition(':')[0]}:///{Path(stores.name).resolve()}" if stores.folder else scrub(url)
    )


async def _same_key(settings: Settings, giving: Home, taking: Home, runtime: Runtime) -> str:
    """Check that the target will be opened with the source's key; otherwise returns the command
    that copies the key.
    """
    from gesta.engine.environment import key_file, master_key

    if settings.master_key is not None:
        return ""
    own, other = key_file(giving.stores), key_file(taking.stores)
    if other is None:
        return f'export GESTA_MASTER_KEY="$(cat {own})"'
    if not other.exists():
        return f"cp -p {own} {other}"
    master, _ = await master_key(settings, giving.stores, runtime)
    if (await master_key(settings, taking.stores, runtime))[0].id != master.id:
        raise WrongMasterKey(str(other))
    return ""


async def _copied(
    call: Invocation,
    giving: Home,
    taking: Home,
    tenant: str | None,
    wait: timedelta,
    by: str | None,
    runtime: Runtime,
) -> CopyReport:
    from gesta.engine.environment import master_key
    from gesta.maintenance.store_copy.copy import Copy
    from gesta.maintenance.store_copy.plan import CopyPlan

    master, _ = await master_key(call.settings, giving.stores, runtime)
    with progress_bar("events") as report:
        return await Copy(
            CopyPlan(giving, taking, tenant),
            master,
            runtime=runtime,
            progress=lambda what, done, total: report(done, total, what),
            tell=tell,
        ).run(wait.total_seconds(), call.actor(by))


def _tell_what_is_next(report: CopyReport, taking: Home, tenant: str | None, key: str) -> None:
    scope = "--everything" if tenant is None else f"--tenant {tenant}"
    if report.is_new:
        unknown = (
            f", {report.possibly_executed} of them possibly executed"
            if report.possibly_executed
            else ""
        )
        stored = f", {report.stored_jobs} jobs of slow endpoints" if report.stored_jobs else ""
        tell(
            f"events copied and verified, {report.claims} keys, {report.secrets} secrets,"
            f" {report.jobs} live jobs{unknown}{stored}; the source accepts no more writes"
        )
    else:
        tell("was copied there before; nothing was changed")
    tell("the copy is paused. Next:")
    if key:
        tell(f"  {key}   # the copy needs the master key of the source")
    tell(
        f"  export GESTA_URL={taking.url}   # with user and password; also change it in programs."
        " Then start the processes that ran on the source"
    )
    tell(f"  gesta resume {scope}")


async def _unfence(settings: Settings, tenant: str | None, runtime: Runtime) -> None:
    from gesta.maintenance.store_copy.copy import unfence

    async with _opened(settings, runtime) as home:
        if not await unfence(home, tenant):
            raise NotFound("fence", home.url)
    scope = "--everything" if tenant is None else f"--tenant {tenant}"
    tell(
        "it accepts writes again and is still paused. Delete the copy before you resume: otherwise"
        " both send"
    )
    tell(f"  gesta resume {scope} --url {settings.url}")
