"""Runs statements on a caller's own connection, inside its transaction.

Supports asyncpg, psycopg and SQLAlchemy. A library is looked up only if the program has imported
it.
"""

import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import asyncpg  # type: ignore[import-untyped]

from gesta.errors import BadTransaction, GestaError, StoreError
from gesta.stores.postgresql.errors import FENCED, fenced

TAKEN = (
    "an asyncpg connection, a psycopg AsyncConnection, or an AsyncSession or AsyncConnection of"
    " SQLAlchemy"
)
_LIBRARIES = frozenset({"asyncpg", "psycopg", "psycopg_pool", "sqlalchemy"})
#: Transaction states of psycopg.
_IDLE, _IN_TRANSACTION = 0, 2
_PARAMETER = re.compile(r"\$(\d+)")


class Caller(Protocol):
    async def begin(self) -> None:
        """Make sure that a transaction is open. Raises BadTransaction in autocommit mode."""

    async def ask(self, text: str, values: Sequence[object]) -> Sequence[Any]:
        """The rows of a statement with the parameters $1, $2 and so on."""


class Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self) -> None:
        if not self._connection.is_in_transaction():
            raise _not_open("async with connection.transaction():")

    async def ask(self, text: str, values: Sequence[object]) -> Sequence[Any]:
        return await self._connection.fetch(text, *values)  # type: ignore[no-any-return]


class Psycopg:
    def __init__(self, connection: Any, library: Any) -> None:
        self._connection, self._library = connection, library

    async def begin(self) -> None:
        status = self._connection.info.transaction_status
        # Without autocommit the next statement begins it.
        if status != _IN_TRANSACTION and (status != _IDLE or self._connection.autocommit):
            raise _not_open("async with connection.transaction():")

    async def ask(self, text: str, values: Sequence[object]) -> Sequence[Any]:
        async with self._library.AsyncRawCursor(
            self._connection, row_factory=self._library.rows.tuple_row
        ) as cursor:
            await cursor.execute(text, values)
            return await cursor.fetchall()  # type: ignore[no-any-return]


class Sqlalchemy:
    """A session begins a transaction with its first statement, unless it is in autocommit mode."""

    def __init__(self, session: Any, library: Any) -> None:
        self._session, self._library = session, library

    async def begin(self) -> None:
        connection = await self._connection()
        # SQLAlchemy begins the transaction of the driver with the first statement.
        await connection.exec_driver_sql("select 1")
        driver = (await connection.get_raw_connection()).driver_connection
        try:
            await caller_of(driver).begin()
        except BadTransaction:
            raise _not_open(
                "async with session.begin():, without the isolation level AUTOCOMMIT"
            ) from None

    async def ask(self, text: str, values: Sequence[object]) -> Sequence[Any]:
        named = {f"value_{number}": value for number, value in enumerate(values, start=1)}
        statement = self._library.text(_PARAMETER.sub(r":value_\1", text))
        rows: list[Any] = (await (await self._connection()).execute(statement, named)).fetchall()
        return rows

    async def _connection(self) -> Any:
        is_session = not isinstance(self._session, self._library.ext.asyncio.AsyncConnection)
        return await self._session.connection() if is_session else self._session


def caller_of(within: object) -> Caller:
    """Raises BadTransaction for an object of another type."""
    if isinstance(within, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return Asyncpg(within)
    psycopg: Any = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(within, psycopg.AsyncConnection):
        return Psycopg(within, psycopg)
    sqlalchemy: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if sqlalchemy is not None and isinstance(
        within,
        sqlalchemy.AsyncSession | sqlalchemy.AsyncConnection | sqlalchemy.async_scoped_session,
    ):
        return Sqlalchemy(within, sys.modules["sqlalchemy"])
    kind = type(within)
    if kind.__module__.partition(".")[0] in _LIBRARIES:
        raise BadTransaction(
            f"a {kind.__name__} of {kind.__module__.partition('.')[0]} is not asynchronous; pass"
            f" {TAKEN}, or call the SQL function gesta_submit in your transaction (docs/within.md)"
        )
    raise BadTransaction(
        f"a {kind.__name__} is not a connection of a supported library; pass {TAKEN}"
    )


def _not_open(how: str) -> BadTransaction:
    return BadTransaction(f"no transaction is open on this connection; open one first: {how}")


def raise_of_caller(place: str, error: Exception) -> NoReturn:
    """Raise an error of the caller's library as ours, and any other as it is."""
    is_theirs = type(error).__module__.partition(".")[0] in _LIBRARIES or isinstance(
        error, OSError | TimeoutError
    )
    if isinstance(error, GestaError) or not is_theirs:
        raise error
    # SQLAlchemy keeps the driver's own error in `orig`.
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None)
    reason = str(cause).strip() or type(cause).__name__
    if state in ("3F000", "42883", "42P01"):
        raise BadTransaction(
            f"the outbox of {place} does not exist ({reason}); connect to the same database"
            " as the engine's url (GESTA_URL)"
        ) from error
    if state == FENCED:
        detail = getattr(cause, "detail", None) or getattr(
            getattr(cause, "diag", None), "message_detail", None
        )
        raise fenced(place, detail) from error
    if state == "42501":
        raise BadTransaction(
            f"the user may not write to the outbox of {place} ({reason}); grant usage on the"
            " schema and execute on defer: docs/within.md"
        ) from error
    raise StoreError(
        f"{place}: your connection failed ({reason}); nothing was written. Roll your transaction"
        " back"
    ) from error
