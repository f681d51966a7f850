"""The vault in SQLite. Implements gesta.vault; the docstrings there are the promise."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from gesta.adapters.sqlite.database import Database
from gesta.adapters.sqlite.statements import sql
from gesta.vault import Sealed


class SqliteVault:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, sealed: Sequence[Sealed]) -> list[bool]:
        def put(db: apsw.Connection) -> list[bool]:
            written = []
            for one in sealed:
                db.execute(sql("put_sealed"), (one.tenant, one.name, one.version, one.box))
                written.append(db.changes() == 1)
            return written

        return await self._database.write(put, durable=True)

    async def get(self, refs: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], Sealed]:
        def get(db: apsw.Connection) -> dict[tuple[str, str, int], Sealed]:
            boxes = ((ref, db.execute(sql("get_sealed"), ref).get) for ref in refs)
            return {ref: Sealed(*ref, box) for ref, box in boxes if box is not None}

        return await self._database.read(get)

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        def delete(db: apsw.Connection) -> None:
            for ref in refs:
                db.execute(sql("delete_sealed"), ref)

        await self._database.write(delete, durable=True)
