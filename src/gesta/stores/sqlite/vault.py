"""The vault in SQLite. Implements gesta.ports.vault."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
from msgspec import structs

from gesta.ports.vault import Encrypted
from gesta.stores.rows import which_written
from gesta.stores.sqlite.database import Database
from gesta.stores.sqlite.statements import ask_many, run_many

#: How long an erasure waits for other readers before it leaves the write-ahead log to the next
#: checkpoint.
CHECKPOINT_MS = 1_000


class SqliteVault:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        refs = [(one.tenant, one.name, one.version) for one in encrypted]
        flat = [value for one in encrypted for value in structs.astuple(one)]

        def put(db: apsw.Connection) -> list[Any]:
            with overwriting(db):
                return ask_many(db, "put_secrets", 4, flat)

        return which_written(refs, await self._database.write(put, durable=True))

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        flat: list[Any] = [value for ref in refs for value in ref]
        rows = await self._database.read(lambda db: ask_many(db, "get_secrets", 3, flat))
        return {row[:3]: Encrypted(*row) for row in rows}

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        flat: list[Any] = [value for name in names for value in name]
        rows = await self._database.read(lambda db: ask_many(db, "newest_secrets", 2, flat))
        return {row[:2]: Encrypted(*row) for row in rows}

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        return [Encrypted(*row) for row in await self._database.ask("list_secrets", *after, limit)]

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        flat: list[Any] = [value for ref in refs for value in ref]

        def delete(db: apsw.Connection) -> None:
            with overwriting(db):
                run_many(db, "delete_secrets", 3, flat)

        await self._database.write(delete, durable=True)
        await empty_log(self._database)


async def empty_log(database: Database) -> None:
    """The write-ahead log has older pages of the table until it is emptied."""
    await database.empty_log(CHECKPOINT_MS)


@contextmanager
def overwriting(db: apsw.Connection) -> Iterator[None]:
    """Overwrite deleted content with zeros.

    A write needs it, too: a page that is split keeps a copy of the half that moved.
    """
    db.execute("pragma secure_delete = on").fetchall()
    try:
        yield
    finally:
        db.execute("pragma secure_delete = off").fetchall()
