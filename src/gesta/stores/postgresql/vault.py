"""The vault in PostgreSQL. Implements gesta.ports.vault."""

from collections.abc import Sequence

from gesta.ports.vault import Encrypted
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.read_model import columns_of
from gesta.stores.rows import which_written


class PostgresqlVault:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        if not encrypted:
            return []
        refs = [(one.tenant, one.name, one.version) for one in encrypted]
        rows = await self._database.run(
            "put_secrets", *columns_of(refs, 3), [one.box for one in encrypted], durable=True
        )
        return which_written(refs, [tuple(row) for row in rows])

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        rows = await self._database.ask("get_secrets", *columns_of(refs, 3)) if refs else []
        return {(row[0], row[1], row[2]): Encrypted(*row) for row in rows}

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        rows = await self._database.ask("newest_secrets", *columns_of(names, 2)) if names else []
        return {(row[0], row[1]): Encrypted(*row) for row in rows}

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        return [Encrypted(*row) for row in await self._database.ask("list_secrets", *after, limit)]

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        if refs:
            await self._database.run("delete_secrets", *columns_of(refs, 3), durable=True)
            # Removes the old versions of the rows. The write-ahead log, replicas and backups are
            # the concern of the operator.
            await self._database.run_outside("clean_vault")
