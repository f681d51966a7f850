"""Views built anew in a second table, while everybody goes on with the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gesta.ports.checkpoints import dispatched_of
from gesta.ports.read_model import Key, Quarantined, View, key_of
from gesta.stores.postgresql.connections import Connection
from gesta.stores.postgresql.database import Database
from gesta.stores.postgresql.view_rows import quarantined_columns, view_of, view_values


class PostgresqlShadow:
    """A table of its own. `swapped` is called once it has taken the place of `requests`."""

    def __init__(
        self, database: Database, table: str, removals: int, swapped: Callable[[], None]
    ) -> None:
        self._database, self._table, self._removals, self._swapped = (
            database,
            table,
            removals,
            swapped,
        )

    @classmethod
    async def make(cls, database: Database, swapped: Callable[[], None]) -> PostgresqlShadow:
        for (left,) in await database.ask("leftover_shadows", database.address.schema):
            text = database.sql("drop_shadow", left)
            await database.transact(partial(_alone, database, text), durable=False)
        ((number,),) = await database.ask("next_shadow")
        table = f"requests_shadow_{number}"

        async def make(connection: Connection) -> int:
            await connection.execute(database.sql("make_shadow", table))
            # What is removed from now on is noticed by the swap.
            ((count,),) = await connection.fetch(database.sql("count_removals"))
            return int(count)

        return cls(database, table, await database.transact(make, durable=False), swapped)

    async def get(self, keys: Sequence[Key]) -> dict[Key, View]:
        columns = (
            [tenant for _, tenant, _ in keys],
            [flow for flow, _, _ in keys],
            [request_id for _, _, request_id in keys],
        )
        rows = await self._database.ask_text(self._database.sql("get_views", self._table), *columns)
        return {key_of(view.state): view for view in map(view_of, rows)}

    async def save(self, views: Sequence[View]) -> None:
        text, rows = self._database.sql("save_shadow", self._table), view_values(views)
        await self._database.transact(
            lambda connection: connection.fetch(text, rows), durable=False
        )

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        sql, marks = self._database.sql, [dispatched_of(name) for name in names]

        async def swap(connection: Connection) -> bool:
            stood = [row[0] for row in await connection.fetch(sql("lock_checkpoints"), list(names))]
            ((removals,),) = await connection.fetch(sql("lock_removals"))
            # One that is not there stands at 0.
            lowest = min(stood) if len(stood) == len(names) else 0
            if lowest < position or removals != self._removals:
                return False
            await connection.fetch(sql("note_dispatched"), list(names), marks)
            await connection.fetch(sql("move_checkpoints_back"), list(names), position)
            await _alone(self._database, sql("swap_views", self._table), connection)
            await connection.fetch(sql("quarantine"), *quarantined_columns(quarantined))
            return True

        # Durable: a job put after this must not outlive the mark that keeps it from being put
        # again.
        is_done = await self._database.transact(swap, durable=True)
        if is_done:
            self._swapped()
        return is_done


async def _alone(database: Database, text: str, connection: Connection) -> None:
    """Run what needs a table for itself."""
    await connection.execute(database.sql("limit_lock_wait"))
    await connection.execute(text)
