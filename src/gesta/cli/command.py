"""Turns a function into a command: adds the global options, runs coroutines, prints errors and
maps them to exit codes.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gesta.cli.invocation import Call, Invocation
from gesta.cli.log import silence_log
from gesta.cli.output import GlobalJson, tell
from gesta.errors import BadSettings, GestaError, OutcomeTimeout, Refused, UnknownFlow

#: Exit codes. Scripts rely on them: a change is a line in CHANGELOG.md.
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
    CONFLICT: "the key was used with different content",
    NOT_YET: "no outcome before the timeout",
    STORE_UNUSABLE: "the store cannot be used",
    TRY_LATER: "backlog or disk is full, nothing was written; try again later",
    130: "interrupted",
}

#: Groups say `get` or `show`, as their kind of thing is called elsewhere.
SYNONYMS = {"show": "get", "get": "show"}

#: Its first parameter is a Call or an Invocation. May be a coroutine function.
Handler = Callable[..., Any]


def global_parameters() -> list[inspect.Parameter]:
    """The options that may also be written before the command."""
    as_json = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=GlobalJson
    )
    return [*_parameters(Invocation), as_json]


def _parameters(kind: Any) -> list[inspect.Parameter]:
    found = inspect.signature(kind, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _plain_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group that passes global options written before a command's name to that command."""

    def get_params(self, ctx: Any) -> Any:
        return _plain_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        other = SYNONYMS.get(args[0])
        if other in self.commands and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Here the command is {other!r}.")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {one.name for one in global_parameters()}
        takes_value = {
            option: not one.is_flag
            for one in ctx.find_root().command.params
            if one.name in names
            for option in one.opts
        }
        moved, left = [], list(args)
        while left and (option := left[0].partition("=")[0]) in takes_value:
            count = 2 if takes_value[option] and option == left[0] else 1
            moved += left[:count]
            del left[:count]
        if left and not left[0].startswith("-"):
            left[1:1] = moved
        return super().parse_args(ctx, left)


def _plain_flags(params: Any) -> Any:
    """Without a type in the help: a flag takes no value."""
    for one in params:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return params


def as_command(handler: Handler) -> Callable[..., None]:
    """The handler with a signature for typer.

    Its first parameter is the call, whose options come last in the help. Each field of a dataclass
    parameter becomes an option or argument.
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

    parameters = [
        part
        for one in (*own, first)
        for part in (
            _parameters(one.annotation)
            if one.name in groups
            else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        )
    ]
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
        # Only BadSettings has several lines; in other errors a line break is user input.
        lines = str(error).split("\n") if isinstance(error, BadSettings) else [_text(error, call)]
        for number, line in enumerate(lines):
            tell(line if number else f"error: {line}", "red")
        raise typer.Exit(exit_code(error)) from None
    except (typer.Exit, typer.BadParameter, BrokenPipeError):
        # typer handles these.
        raise
    except Exception as error:
        if call.debug:
            raise
        text = (
            f"{error.filename or 'system'}: {error.strerror or error}"
            if isinstance(error, OSError)
            else f"{type(error).__name__}: {error}. This is a bug in gesta; please report the"
            " traceback that `--debug` prints"
        )
        tell(f"error: {text}", "red")
        raise typer.Exit(FAILED) from None


def _text(error: GestaError, call: Call) -> str:
    """The error's text. Commands in it repeat the options of this call."""
    text = str(error)
    if not isinstance(call, Invocation):
        return text
    if isinstance(error, OutcomeTimeout):
        why = f"doctor {error.request_id}"
        text = text.replace(f"gesta {why}", call.place.command(why))
    if isinstance(error, Refused | OutcomeTimeout):
        text = call.place.resuming(text)
    if isinstance(error, UnknownFlow) and call.server_address is None and call.settings.app is None:
        from gesta.cli.flows import how_to_get
        from gesta.flows.channels import how_to_add

        # There is no Engine in a program here to add the flow to.
        if added := how_to_add(error.name):
            text = text.partition(added)[0]
        text = f"{text}; {how_to_get(error.name, call.settings)}"
    return text


def exit_code(error: GestaError) -> int:
    """The code of the most specific class that has one, else FAILED."""
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
