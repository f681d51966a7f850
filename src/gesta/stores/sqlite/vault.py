"""The vault in SQLite. Implements gesta.ports.vault; the docstrings there are the promise."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from gesta.ports.vault import Encrypted
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many, sql

#: How long an erasure waits for other readers before it leaves the write-ahead log to the next
#: checkpoint.
CHECKPOINT_MS = 1_000


class SqliteVault:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        flat: list[Any] = [
            value for one in encrypted for value in (one.tenant, one.name, one.version, one.box)
        ]

        def put(db: apsw.Connection) -> list[tuple[Any, ...]]:
            with _overwriting(db):
                return ask_many(db, "put_secrets", 4, flat)

        written = set(await self._database.write(put, durable=True))
        answers = []
        for one in encrypted:
            ref = (one.tenant, one.name, one.version)
            answers.append(ref in written)
            # Of two boxes for a version in one call the first was written.
            written.discard(ref)
        return answers

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        flat: list[Any] = [value for ref in refs for value in ref]
        rows: list[Any] = await self._database.read(lambda db: ask_many(db, "get_secrets", 3, flat))
        return {row[:3]: Encrypted(*row) for row in rows}

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        flat: list[Any] = [value for name in names for value in name]
        rows: list[Any] = await self._database.read(
            lambda db: ask_many(db, "newest_secrets", 2, flat)
        )
        return {row[:2]: Encrypted(*row) for row in rows}

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        rows: list[Any] = await self._database.read(
            lambda db: db.execute(sql("list_secrets"), (*after, limit)).fetchall()
        )
        return [Encrypted(*row) for row in rows]

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        flat: list[Any] = [value for ref in refs for value in ref]

        def delete(db: apsw.Connection) -> None:
            with _overwriting(db):
                run_many(db, "delete_secrets", 3, flat)

        await self._database.write(delete, durable=True)
        # Older pages of the table stand in the write-ahead log until it is emptied.
        await self._database.empty_log(CHECKPOINT_MS)


@contextmanager
def _overwriting(db: apsw.Connection) -> Iterator[None]:
    """What goes is overwritten with zeros.

    Also while writing: a page that is split keeps a copy of the half that moved.
    """
    db.execute("pragma secure_delete = on").fetchall()
    try:
        yield
    finally:
        db.execute("pragma secure_delete = off").fetchall()
