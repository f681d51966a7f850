"""The command `gesta`: its commands, in the order of the help."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer
import typer.main

from gesta.cli import (
    admin,
    config,
    copy,
    decisions,
    demo,
    dlq,
    docs,
    doctor,
    inbound_dlq,
    jobs,
    key,
    pauses,
    reconcile,
    requests,
    sandbox,
    serve,
    show,
    template,
    tx,
)
from gesta.cli.command import (
    MEANINGS,
    Command,
    Group,
    Handler,
    as_command,
    global_parameters,
)

EPILOG = (
    "Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items()) + "."
)

#: Panel of the help → commands in it.
COMMANDS: dict[str, dict[str, Handler]] = {
    "Run": {
        "demo": demo.demo,
        "serve": serve.serve,
        "api": serve.api,
        "worker": serve.worker,
        "docs": docs.docs,
        "openapi": admin.openapi,
    },
    "Requests": {
        "submit": requests.submit,
        "show": show.show,
        "list": requests.list_requests,
        "tail": show.tail,
        "retry": decisions.retry,
        "cancel": decisions.cancel,
        "redrive": decisions.redrive,
        "resolve": decisions.resolve,
    },
    "Admin": {
        "doctor": doctor.doctor,
        "pause": pauses.pause,
        "resume": pauses.resume,
        "rebuild": admin.rebuild,
        "copy": copy.copy,
        "erase": admin.erase,
        "reconcile": reconcile.reconcile,
        "settings": admin.list_settings,
    },
}

#: Group → its text and commands.
GROUPS: dict[str, tuple[str, dict[str, Handler]]] = {
    "dlq": (
        "Dead letters: requests that failed permanently.",
        {
            "list": dlq.list_letters,
            "show": dlq.show_letter,
            "redrive": dlq.redrive_letters,
            "purge": dlq.purge_letters,
            "inbound": inbound_dlq.list_inbound,
            "redrive-inbound": inbound_dlq.redrive_inbound,
            "purge-inbound": inbound_dlq.purge_inbound,
        },
    ),
    "config": (
        "Config of a tenant: endpoints, senders, templates and their secrets.",
        {
            "list": config.list_entities,
            "get": config.get_entity,
            "put": config.put_entity,
            "delete": config.delete_entity,
            "apply": config.apply_file,
        },
    ),
    "key": (
        "API keys of a tenant.",
        {"create": key.create, "list": key.list_keys, "revoke": key.revoke},
    ),
    "jobs": (
        "Jobs of slow endpoints in Redis.",
        {"migrate": jobs.migrate_jobs},
    ),
    "sandbox": (
        "Events of other systems, to try the path of an inbound event.",
        {"slack-event": sandbox.slack_event},
    ),
    "tx": (
        "Transactions: payments, transfers and settlements.",
        {
            "authorize": tx.authorize,
            "show": tx.show_transaction,
            "capture": tx.capture,
            "post": tx.post,
            "void": tx.void,
            "refund": tx.refund,
            "reverse": tx.reverse,
            "unknown": tx.list_unknown,
        },
    ),
    "template": (
        "Message templates.",
        {"preview": template.preview},
    ),
}


@cache
def build() -> Callable[..., None]:
    """The command line as typer runs it."""
    # Locals in a traceback could be secrets: show Python's plain tracebacks, with --debug only.
    app = typer.Typer(
        cls=Group, no_args_is_help=True, epilog=EPILOG, pretty_exceptions_enable=False
    )
    app.callback()(_root())
    for panel, commands in COMMANDS.items():
        for name, handler in commands.items():
            app.command(name, cls=Command, rich_help_panel=panel)(as_command(handler))
    for name, (text, commands) in GROUPS.items():
        group = typer.Typer(cls=Group, no_args_is_help=True)
        for verb, handler in commands.items():
            group.command(verb, cls=Command)(as_command(handler))
        app.add_typer(group, name=name, help=text, rich_help_panel="Admin")
    return typer.main.get_command(app)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(version("gesta"))
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
]


def _root() -> Callable[..., None]:
    """`gesta` without a command. It lists the global options; Group passes them to the command."""

    def root(**_: object) -> None:
        """Execute side effects once and keep the record."""

    own = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, annotation=Version)
    parameters = [own.replace(default=False), *global_parameters()]
    root.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return root


def main(arguments: list[str] | None = None) -> None:
    """Run a command, by default that of this process's arguments.

    Ends in SystemExit with its exit code.
    """
    build()(args=arguments, prog_name="gesta")
