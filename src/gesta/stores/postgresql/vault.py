"""The vault in PostgreSQL. Implements gesta.ports.vault; the docstrings there are the promise."""

from collections.abc import Sequence
from typing import Any

from gesta.ports.vault import Encrypted
from gesta.stores.postgresql.database import Database


class PostgresqlVault:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        if not encrypted:
            return []
        refs = [(one.tenant, one.name, one.version) for one in encrypted]
        rows = await self._write("put_secrets", *_columns(refs, 3), [one.box for one in encrypted])
        written = {tuple(row) for row in rows}
        answers = []
        for ref in refs:
            answers.append(ref in written)
            # Of two boxes for a version in one call the first was written.
            written.discard(ref)
        return answers

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        rows = await self._database.ask("get_secrets", *_columns(refs, 3)) if refs else []
        return {(row[0], row[1], row[2]): Encrypted(*row) for row in rows}

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        rows = await self._database.ask("newest_secrets", *_columns(names, 2)) if names else []
        return {(row[0], row[1]): Encrypted(*row) for row in rows}

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        return [Encrypted(*row) for row in await self._database.ask("list_secrets", *after, limit)]

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        if refs:
            await self._write("delete_secrets", *_columns(refs, 3))
            # The rows as they were stand in the table until then. Write-ahead log, replicas and
            # backups are the operator's.
            await self._database.run_outside("clean_vault")

    async def _write(self, name: str, *values: object) -> list[Any]:
        text = self._database.sql(name)
        return await self._database.transact(
            lambda connection: connection.fetch(text, *values), durable=True
        )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[place] for row in rows] for place in range(width)]
