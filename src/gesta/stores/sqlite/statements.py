"""The SQL of this adapter: one file per verb in sql/, read once.

A statement with `{rows}` carries many rows at once. That is not only fewer calls: SQLite runs a
whole statement without Python's
lock, while a loop of single-row statements would beg for the lock at every row and starve behind
the event loop.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import apsw

#: Where the rows go, each with what is the same for all of them: `{rows}`, or `{rows,0,1}`.
_ROWS = re.compile(r"\{rows([^}]*)\}")
#: Rows per statement, largest first: up to 127 rows, as some dozens of callers make them, are two
#: statements at most, and a thousand
#: rows are five. Each is prepared once per connection, as long as its text stays below the 16 KB
#: above which apsw does not keep a statement.
SIZES = (512, 256, *range(128, 16, -16), *range(16, 0, -1))


@cache
def sql(name: str) -> str:
    """The text of sql/<name>.sql."""
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


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
