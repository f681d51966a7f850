"""Runs the named statements of this adapter.

A statement with `{rows}` carries many rows at once. That saves calls. SQLite also runs a whole
statement without Python's lock, while a loop of single-row statements would acquire the lock for
every row and starve behind the event loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import apsw

from gesta.stores.statements import statements_of

#: Where the rows go. `{rows,0,1}` appends the same constants to each of them.
_ROWS = re.compile(r"\{rows([^}]*)\}")
#: Rows per statement, largest first. 127 rows take at most two statements, a thousand rows five.
#: Each is prepared once per connection while its text stays below 16 KB: apsw caches no larger one.
SIZES = (512, 256, *range(128, 16, -16), *range(16, 0, -1))


#: The text of a statement by its name.
sql = statements_of(__package__).__getitem__


@cache
def _sized(name: str, width: int, rows: int, table: str) -> str:
    def values(constants: re.Match[str]) -> str:
        return ",".join([f"({','.join('?' * width)}{constants[1]})"] * rows)

    return _ROWS.sub(values, sql(name).replace("{table}", table))


def run_many(
    db: apsw.Connection,
    name: str,
    width: int,
    flat: list[apsw.SQLiteValue],
    table: str = "requests",
) -> int:
    """Run a `{rows}` statement over rows laid end to end; how many rows it changed.

    `table` is the table of views.
    """
    changed = 0
    for text, part in _parts(name, width, flat, table):
        db.execute(text, part)
        changed += db.changes()
    return changed


def ask_many(
    db: apsw.Connection,
    name: str,
    width: int,
    flat: list[apsw.SQLiteValue],
    table: str = "requests",
) -> list[Any]:
    """Run a `{rows}` query over rows laid end to end; all answers."""
    answers: list[Any] = []
    for text, part in _parts(name, width, flat, table):
        answers += db.execute(text, part).fetchall()
    return answers


def _parts(
    name: str, width: int, flat: list[apsw.SQLiteValue], table: str
) -> Iterator[tuple[str, list[apsw.SQLiteValue]]]:
    """The statements to run, each with its part of the rows."""
    start, end = 0, len(flat)
    for size in SIZES:
        step = size * width
        while end - start >= step:
            yield _sized(name, width, size, table), flat[start : start + step]
            start += step
