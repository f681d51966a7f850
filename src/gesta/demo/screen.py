"""Prints the demo: a line for each step, a table at the end, and how to look further."""

import sys
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gesta.demo.orders import OrderResult, Tally
from gesta.runtime.clock import Runtime

#: Longer lines are hard to read, however wide the terminal is.
WIDTH_MAX = 100
#: The column where text begins; the time is left of it.
_MARGIN = 9
_COLUMNS = ("order", "what it shows", "status", "attempts", "received", "effects")


class Screen:
    """With `json` only the result goes to stdout, and the story to stderr."""

    def __init__(self, runtime: Runtime, *, json: bool) -> None:
        self._runtime, self._json = runtime, json
        self._started = runtime.monotonic()
        console = Console(file=sys.stderr if json else sys.stdout, highlight=False)
        console.width = min(console.width, WIDTH_MAX)
        self._console = console

    @property
    def seconds(self) -> float:
        return self._runtime.monotonic() - self._started

    def title(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def act(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, style="bold cyan"))

    def say(self, text: str) -> None:
        """One step, with its time."""
        self._line(Text(f"{self.seconds:5.1f} s", style="dim"), Text(text))

    def fact(self, after_seconds: float, name: str, text: str) -> None:
        """An event, with the time since the first one."""
        self._line(
            Text(f"{f'+{after_seconds:.1f}':>5} s", style="dim"),
            Text.assemble((f"{name:<16}", "bold"), text),
        )

    def aside(self, text: str) -> None:
        self._line(Text(""), Text(text, style="dim"))

    def fail(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text, style="bold red"))

    def show(self, result: OrderResult) -> None:
        """The table, or the same as JSON."""
        self.act("Counted at the receiver")
        self._console.print(_table(result.tallies))
        for promise in result.broken:
            self._console.print(Text(f"Not as promised: {promise}", style="bold red"))
        self._console.print(_verdict(result))
        if self._json:
            sys.stdout.write(
                msgspec.json.format(msgspec.json.encode(result.as_document()), indent=2).decode()
                + "\n"
            )
            sys.stdout.flush()

    def commands(self, lines: Sequence[str]) -> None:
        """Lines to be copied into a terminal, so they are never wrapped."""
        for line in lines:
            self._console.print(Text(line, style="bold"), soft_wrap=True)

    def _line(self, left: Text, right: Text) -> None:
        for part in right.wrap(self._console, self._console.width - _MARGIN):
            part.rstrip()
            self._console.print(
                Text.assemble(left, " " * (_MARGIN - len(left)), part), soft_wrap=True
            )
            left = Text("")


def _table(tallies: Sequence[Tally]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        is_number = name in ("attempts", "received", "effects")
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=name != "what it shows"
        )
    for tally in tallies:
        numbers = (str(tally.attempts), str(tally.received), Text(str(tally.effects), style="bold"))
        status = Text(tally.status, style="green" if tally.status == "sent" else "red")
        table.add_row(
            tally.order, tally.shows, status, *numbers, style="" if tally.is_right else "bold red"
        )
    return table


def _verdict(result: OrderResult) -> Text:
    tallies = result.tallies
    wrong = [tally for tally in tallies if not tally.is_right]
    if wrong:
        wrong_ones = ", ".join(
            f"{tally.order} is {tally.status} and has {tally.effects}" for tally in wrong
        )
        return Text(f"Not every request has exactly one effect: {wrong_ones}.", style="bold red")
    received, effects = (
        sum(tally.received for tally in tallies),
        sum(tally.effects for tally in tallies),
    )
    summary = (
        f"{len(tallies)} requests, {received} messages received, {effects} effects: exactly one for"
        " each request."
    )
    return Text(summary, style="bold green" if result.is_right else "bold")
