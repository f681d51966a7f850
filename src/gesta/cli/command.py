"""A function becomes a command: the options of its call are added, coroutines are run, errors are
told and become exit codes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from gesta.cli.exit_codes import FAILED, exit_code
from gesta.cli.invocation import Call, Invocation, silence_log
from gesta.cli.output import tell

if TYPE_CHECKING:
    from gesta.errors import GestaError

#: Takes a Call or an Invocation first, then what the command itself asks for. May be a coroutine
#: function.
Handler = Callable[..., Any]


def as_command(handler: Handler) -> Callable[..., None]:
    """The handler as typer wants it.

    Each field of its first parameter's type becomes an option beside its own.
    """
    first, *own = inspect.signature(handler, eval_str=True).parameters.values()
    kind: type[Call] = first.annotation
    shared = inspect.signature(kind, eval_str=True).parameters.values()

    def command(**given: Any) -> None:
        call = kind(**{one.name: given.pop(one.name) for one in shared})
        _run(handler, call, given)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = handler.__name__, handler.__doc__
    return command


def _run(handler: Handler, call: Call, given: dict[str, Any]) -> None:
    from gesta.errors import BadSettings, GestaError
    from gesta.runtime.clock import run

    silence_log()
    try:
        answer = handler(call, **given)
        if inspect.iscoroutine(answer):
            run(answer)
    except GestaError as error:
        if call.debug:
            raise
        # Settings alone are told line by line; elsewhere a line break is something that somebody
        # wrote.
        lines = str(error).split("\n") if isinstance(error, BadSettings) else [_told(error, call)]
        for number, line in enumerate(lines):
            tell(line if number else f"error: {line}", "red")
        raise typer.Exit(exit_code(error)) from None
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        # typer knows what to do with these.
        raise
    except OSError as error:
        if call.debug:
            raise
        tell(f"error: {error.filename or 'the system'}: {error.strerror or error}", "red")
        raise typer.Exit(FAILED) from None
    except Exception as error:
        if call.debug:
            raise
        tell(
            f"error: {type(error).__name__}: {error}. This is a fault in gesta; please report what"
            " `--debug` shows",
            "red",
        )
        raise typer.Exit(FAILED) from None


def _told(error: GestaError, call: Call) -> str:
    """The error's text, with commands in it as they have to be written here, and what else helps on
    the command line.
    """
    from gesta.errors import NotYet, UnknownFlow

    if not isinstance(call, Invocation):
        return str(error)
    text = str(error)
    if isinstance(error, NotYet):
        why = f"doctor {error.request_id}"
        text = text.replace(f"gesta {why}", call.place.command(why))
    if isinstance(error, UnknownFlow) and call.server_address is None and call.settings.app is None:
        from gesta.cli.flows import how_to_get
        from gesta.flows.channels import how_to_add

        # Nobody has an Engine here to add it to.
        if added := how_to_add(error.name):
            text = text.partition(added)[0]
        text = f"{text}; {how_to_get(error.name, call.settings)}"
    return text
