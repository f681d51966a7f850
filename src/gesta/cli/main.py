"""The command `gesta`: every command, in the order in which a newcomer meets them."""

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
    doctor,
    key,
    pauses,
    requests,
    serve,
    show,
    template,
)
from gesta.cli.command import MEANINGS, Handler, as_command

EPILOG = (
    "Exit codes: " + " · ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items()) + "."
)

#: Panel of the help → commands in it.
COMMANDS: dict[str, dict[str, Handler]] = {
    "Run": {
        "demo": demo.demo,
        "serve": serve.serve,
        "api": serve.api,
        "projector": serve.projector,
        "worker": serve.worker,
        "sweeper": serve.sweeper,
        "openapi": admin.openapi,
    },
    "Requests": {
        "send": requests.send,
        "show": show.show,
        "list": requests.list_requests,
        "tail": show.tail,
        "retry": decisions.retry,
        "cancel": decisions.cancel,
        "redrive": decisions.redrive,
        "resolve": decisions.resolve,
    },
    "Upkeep": {
        "doctor": doctor.doctor,
        "pause": pauses.pause,
        "resume": pauses.resume,
        "rebuild": admin.rebuild,
        "copy": copy.copy,
        "erase": admin.erase,
        "settings": admin.list_settings,
    },
}

#: Group → its text and commands.
GROUPS: dict[str, tuple[str, dict[str, Handler]]] = {
    "dlq": (
        "Dead letters: requests that failed for good.",
        {
            "list": dlq.list_letters,
            "show": dlq.show_letter,
            "redrive": dlq.redrive_letters,
            "purge": dlq.purge_letters,
        },
    ),
    "config": (
        "A tenant's config: endpoints and their secrets, by code.",
        {
            "list": config.list_entities,
            "get": config.get_entity,
            "put": config.put_entity,
            "delete": config.delete_entity,
            "apply": config.apply_file,
        },
    ),
    "key": (
        "API keys: who may do what over HTTP, in a tenant's name.",
        {"create": key.create, "list": key.list_keys, "revoke": key.revoke},
    ),
    "template": (
        "Templates of messages, stored as config of kind template.",
        {"preview": template.preview},
    ),
}


@cache
def build() -> Callable[..., None]:
    """The command line as typer runs it."""
    # Locals in a traceback could be secrets, so tracebacks are Python's plain ones, and only shown
    # with --debug.
    app = typer.Typer(no_args_is_help=True, epilog=EPILOG, pretty_exceptions_enable=False)
    app.callback()(_root)
    for panel, commands in COMMANDS.items():
        for name, handler in commands.items():
            app.command(name, rich_help_panel=panel)(as_command(handler))
    for name, (text, commands) in GROUPS.items():
        group = typer.Typer(no_args_is_help=True)
        for verb, handler in commands.items():
            group.command(verb)(as_command(handler))
        app.add_typer(group, name=name, help=text, rich_help_panel="Upkeep")
    return typer.main.get_command(app)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(version("gesta"))
        raise typer.Exit


def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Every side effect, done once and on record."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command, that of this process's arguments unless others are given.

    Ends in SystemExit with its exit code.
    """
    build()(args=arguments, prog_name="gesta")
