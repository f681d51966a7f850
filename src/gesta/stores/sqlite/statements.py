"""Runs the named statements of this adapter.

A statement with `{rows}` carries many rows at once. That saves calls. SQLite also runs a whole
statement without Python's lock, while a loop of single-row statements would acquire the lock for
every row and starve behind the event loop.
"""

from __future__ import annotations

import re
from functools import cache

import apsw

from gesta.stores.statements import statements_of

#: Where the rows go, each with what is the same for all of them: `{rows}`, or `{rows,0,1}`.
_ROWS = re.compile(r"\{rows([^}]*)\}")
#: Rows per statement, largest first: up to 127 rows, as some dozens of callers make them, are two
#: statements at most, and a thousand
#: rows are five. Each is prepared once per connection, as long as its text stays below the 16 KB
#: above which apsw does not keep a statement.
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

    `table` is where views are meant.
    """
    changed, start, end = 0, 0, len(flat)
    for size in SIZES:
        step = size * width
        while end - start >= step:
            db.execute(_sized(name, width, size, table), flat[start : start + step])
            changed += db.changes()
            start += step
    return changed


def ask_many(
    db: apsw.Connection,
    name: str,
    width: int,
    flat: list[apsw.SQLiteValue],
    table: str = "requests",
) -> list[tuple[apsw.SQLiteValue, ...]]:
    """Run a `{rows}` query over rows laid end to end; all answers."""
    answers: list[tuple[apsw.SQLiteValue, ...]] = []
    start, end = 0, len(flat)
    for size in SIZES:
        step = size * width
        while end - start >= step:
            answers += db.execute(
                _sized(name, width, size, table), flat[start : start + step]
            ).fetchall()
            start += step
    return answers
