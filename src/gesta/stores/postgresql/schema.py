"""Creates and upgrades the schema. Several processes may start at the same time.

A newer gesta may have upgraded the schema. Its migrations are additive and state the oldest version
that works with them, so that two versions can run side by side during a deployment.
"""

import logging
import re
from collections.abc import Sequence

from gesta.errors import NotOurs, TooNew
from gesta.stores.migrations import Migration, migrations_of
from gesta.stores.postgresql.connections import Connection
from gesta.stores.postgresql.database import Database

_COMPATIBLE = re.compile(r"-- compatible from (\d+)\n")
_log = logging.getLogger("gesta")


async def bring_up_to_date(database: Database, known: Sequence[Migration] | None = None) -> int:
    """The number of the newest migration that the schema has.

    Raises TooNew when this gesta cannot work with it.
    """
    migrations = known or migrations_of(__package__)
    version = await _version(database)
    if version is None or version[0] < len(migrations):
        await database.transact(
            lambda connection: _migrate(database, connection, migrations), durable=True
        )
        version = await _version(database)
    assert version is not None
    number, compatible_from = version
    if compatible_from > len(migrations):
        raise TooNew(database.name, number, len(migrations))
    if number > len(migrations):
        _log.warning(
            "%s has schema %d, this gesta knows %d and works with it",
            database.name,
            number,
            len(migrations),
        )
    return number


async def _version(database: Database) -> tuple[int, int] | None:
    """None: the schema has no tables of gesta."""
    ours, others = (await database.ask("schema_exists", database.address.schema))[0]
    if not ours:
        if others:
            raise NotOurs(database.name, "the schema contains another program's tables")
        return None
    number, compatible_from = (await database.ask("schema_version"))[0]
    return number, compatible_from


async def _migrate(
    database: Database, connection: Connection, migrations: Sequence[Migration]
) -> None:
    sql = database.sql
    await connection.fetch(sql("schema_lock"), database.address.schema)
    # Read again under the lock: another process may have created it.
    await connection.execute(sql("make_schema"))
    number, _ = (await connection.fetch(sql("schema_version")))[0]
    for migration in migrations[number:]:
        await connection.execute(sql.filled(migration.sql))
        await connection.fetch(
            sql("note_migration"), migration.number, migration.name, _compatible_from(migration)
        )


def _compatible_from(migration: Migration) -> int:
    stated = _COMPATIBLE.match(migration.sql)
    if stated is None:
        raise ValueError(f"{migration.name} must begin with '-- compatible from <number>'")
    return int(stated[1])
