"""A function becomes a command: the options of its call are added, coroutines are run, errors are
told and become exit codes.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import typer

from gesta.cli.invocation import Call, Invocation, silence_log
from gesta.cli.output import tell
from gesta.errors import BadSettings, GestaError, OutcomeTimeout, UnknownFlow

#: What the exit code of a command says. Scripts build on it; a change is a line in CHANGELOG.md.
FAILED = 1
BAD_INPUT = 2
NOT_FOUND = 3
CONFLICT = 4
NOT_YET = 5
STORE_UNUSABLE = 6
TRY_LATER = 7

MEANINGS = {
    0: "done",
    FAILED: "failed or refused",
    BAD_INPUT: "wrong usage or bad input, nothing was written",
    NOT_FOUND: "not found",
    CONFLICT: "the key was used with other content",
    NOT_YET: "no outcome within the time given",
    STORE_UNUSABLE: "the store cannot be used",
    TRY_LATER: "too much is waiting or the disk is nearly full, nothing was written",
    130: "interrupted",
}

#: Takes a Call or an Invocation first, then what the command itself asks for. May be a coroutine
#: function.
Handler = Callable[..., Any]


def as_command(handler: Handler) -> Callable[..., None]:
    """The handler as typer wants it.

    Its first parameter is the call, whose options come last in the help. Each field of a parameter
    that is a dataclass becomes an option or argument of its own.
    """
    first, *own = inspect.signature(handler, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in (first, *own) if is_dataclass(one.annotation)
    }

    def command(**given: Any) -> None:
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)})
            for name, kind in groups.items()
        }
        _run(handler, made.pop(first.name), {**given, **made})

    flat = [
        part
        for one in (*own, first)
        for part in (
            inspect.signature(one.annotation, eval_str=True).parameters.values()
            if one.name in groups
            else (one,)
        )
    ]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in flat]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = handler.__name__, handler.__doc__
    return command


def _run(handler: Handler, call: Call, given: dict[str, Any]) -> None:
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
    if not isinstance(call, Invocation):
        return str(error)
    text = str(error)
    if isinstance(error, OutcomeTimeout):
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


def exit_code(error: GestaError) -> int:
    """The code of the error's nearest kind; what has none of its own failed or was refused."""
    from gesta import errors as e

    codes: dict[type, int] = {
        e.BadInput: BAD_INPUT,
        e.NotFound: NOT_FOUND,
        e.Conflict: CONFLICT,
        e.OutcomeTimeout: NOT_YET,
        e.PoisonEvent: STORE_UNUSABLE,
        e.StoreError: STORE_UNUSABLE,
        e.Overloaded: TRY_LATER,
    }
    return next((codes[kind] for kind in type(error).__mro__ if kind in codes), FAILED)
