"""Views built anew in a second table, while everybody goes on with the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from gesta.ports.checkpoints import dispatched_of
from gesta.ports.read_model import Key, Quarantined, View, key_of
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql
from gesta.stores.sqlite.view_rows import quarantine_step, view_of, view_rows

#: Rows taken away per commit: other processes wait for the file no longer than for any other
#: commit.
STEP = 5_000


class SqliteShadow:
    """A table of its own.

    `swapped` is called in the event loop once it has taken the place of `requests`.
    """

    def __init__(
        self, database: Database, made: tuple[str, int], swapped: Callable[[], None]
    ) -> None:
        self._database, self._swapped = database, swapped
        self._table, self._removals = made

    @classmethod
    async def make(cls, database: Database, swapped: Callable[[], None]) -> SqliteShadow:
        await _take_away(database)
        return cls(database, await database.write(_make, durable=False), swapped)

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        flat: list[Any] = [
            value for flow, tenant, request_id in keys for value in (tenant, flow, request_id)
        ]
        rows = await self._database.read(lambda db: ask_many(db, "get_views", 3, flat, self._table))
        return {key_of(view.state): view for view in map(view_of, rows)}

    async def save(self, views: Sequence[View]) -> None:
        await self._database.write(
            lambda db: run_many(db, "save_views", 9, view_rows(views), self._table), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_done = await self._database.write(
            lambda db: _swap(db, self._table, self._removals, names, position, quarantined),
            durable=True,
        )
        if is_done:
            self._swapped()
            await _take_away(self._database)
        return is_done


async def _take_away(database: Database) -> None:
    """What nobody reads any more, in small steps: dropping a large table at once would hold the
    file for long.
    """
    while await database.write(_take_step, durable=False):
        pass


def _make(db: apsw.Connection) -> tuple[str, int]:
    """The new table, and how many requests had been removed when it was made."""
    # The number rises with every change of the schema, so nothing of this name is left from an
    # earlier rebuild.
    table = f"requests_shadow_{db.execute('pragma schema_version').get}"
    db.execute(sql("make_shadow").replace("{table}", table)).fetchall()
    return table, int(db.execute(sql("count_removals")).get)


def _take_step(db: apsw.Connection) -> bool:
    """Whether there may be more to take away."""
    table = db.execute(sql("leftover_shadows")).get
    if table is None:
        return False
    db.execute(sql("empty_shadow").replace("{table}", str(table)), (STEP,)).fetchall()
    if not db.changes():
        db.execute(sql("drop_shadow").replace("{table}", str(table)))
    return True


def _swap(
    db: apsw.Connection,
    table: str,
    removals: int,
    names: Sequence[str],
    position: int,
    quarantined: Sequence[Quarantined],
) -> bool:
    stood = [db.execute(sql("get_checkpoint"), (name,)).get or 0 for name in names]
    if min(stood) < position or db.execute(sql("count_removals")).get != removals:
        return False
    for name in names:
        db.execute(sql("note_dispatched"), (name, dispatched_of(name)))
        db.execute(sql("move_checkpoints_back"), (name, position))
    db.execute(sql("swap_views").replace("{table}", table)).fetchall()
    quarantine_step(db, quarantined)
    return True
