"""The output for people and programs: data on stdout, messages about it on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

import msgspec
import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

T = TypeVar("T")

#: The width if there is no terminal: nothing has to be wrapped.
WIDTH_OF_A_PIPE = 200

STATUS_STYLES = {
    "sent": "green",
    "completed": "green",
    "failed": "red",
    "unknown": "yellow",
    "queued": "cyan",
    "waiting": "cyan",
    "compensated": "yellow",
    "expired": "dim",
    "cancelled": "dim",
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
GlobalJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel="Global options"),
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line instead of a table.")
]


#: Characters that move the cursor, break a line, change colours or reverse the order of letters,
#: and characters that no terminal can print.
_CONTROL = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text as one line; control characters are shown instead of obeyed."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def tell(text: str, style: str = "") -> None:
    """Print a message in one line on stderr."""
    _print(sys.stderr, visible(text), style)


def say(text: str, style: str = "") -> None:
    """Print a line of data immediately."""
    _print(sys.stdout, visible(text), style)


def print_json(document: object) -> None:
    """Print one JSON document, indented."""
    _print_json(msgspec.json.format(msgspec.json.encode(document), indent=2))


def print_list(items: Iterable[object], next_: str | None = None) -> None:
    """A list as the HTTP API answers it. `next_` is the cursor of the next page."""
    print_json({"items": list(items), "next": next_})


def print_answer(document: object, line: str, note: str = "", *, as_json: bool) -> None:
    """The answer of a command: a JSON document, or a line of data and a message about it."""
    if as_json:
        print_json(document)
        return
    say(line)
    if note:
        tell(note)


def print_items(
    items: Sequence[T],
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    nothing: str,
    folded: Sequence[str] = (),
    next_: str | None = None,
    as_json: bool,
) -> None:
    """A list: JSON, a table with a row for each item, or `nothing` where there are none."""
    if as_json:
        print_list(items, next_)
    elif items:
        show(table(columns, map(row, items), folded=folded))
        tell_more(len(items), next_)
    else:
        tell(nothing)


def tell_more(count: int, next_: str | None) -> None:
    """Say that a list goes on, and how to see the rest."""
    if next_ is not None:
        tell(f"{count} shown; more with --limit or --cursor {next_}")


def print_json_line(record: object) -> None:
    _print_json(msgspec.json.encode(record))


def _print_json(encoded: bytes) -> None:
    # Escapes control characters that JSON allows unescaped; line breaks come only from the
    # indentation.
    _print(
        sys.stdout,
        _CONTROL.sub(
            lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}",
            encoded.decode(),
        ),
    )


def _print(stream: TextIO, text: str, style: str = "") -> None:
    _console(stream).print(text, style=style or None, markup=False, highlight=False, soft_wrap=True)
    stream.flush()


def print_text(text: str) -> None:
    """A text of several lines, unchanged."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_markdown(text: str) -> None:
    from rich.markdown import Markdown

    _console(sys.stdout).print(Markdown(text))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr, if that is a terminal. The body reports (done, total), and a new
    text when it starts another step.
    """
    from rich.console import Console
    from rich.progress import Progress

    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int, what: str = what) -> None:
            progress.update(task, description=what, completed=done, total=total)

        yield report


def show(*parts: RenderableType) -> None:
    """Print tables, with a blank line between two."""
    console = _console(sys.stdout)
    for number, part in enumerate(parts):
        if number:
            console.print()
        console.print(part, highlight=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    folded: Sequence[str] = (),
) -> Table:
    """A table whose `folded` columns are wrapped if the terminal is narrow; all others are shown
    whole.
    """
    from rich.table import Table
    from rich.text import Text

    built = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title=title or None,
        title_justify="left",
        title_style="bold",
    )
    for column in columns:
        built.add_column(
            column, no_wrap=column not in folded, overflow="fold", header_style="dim underline"
        )
    for row in rows:
        built.add_row(*(Text(visible(cell), style=STATUS_STYLES.get(cell, "")) for cell in row))
    return built


def facts(pairs: Mapping[str, str]) -> Table:
    """Names and values, one per line; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    built = Table.grid(padding=(0, 2))
    built.add_column(style="bold", no_wrap=True)
    built.add_column(overflow="fold")
    for name, value in pairs.items():
        if value:
            built.add_row(name, Text(visible(value), style=STATUS_STYLES.get(value, "")))
    return built


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, width=get_terminal_size((WIDTH_OF_A_PIPE, 50)).columns)
