"""A caller's own connection, of whichever library: how to ask on it inside its transaction.

A library is looked for only where it is loaded already, which it is where somebody has a connection
of it.
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
#: psycopg's word for a connection with an open transaction, and for one that begins it with its
#: next statement.
_IDLE, _IN_TRANSACTION = 0, 2
_PARAMETER = re.compile(r"\$(\d+)")


class Caller(Protocol):
    async def begin(self) -> None:
        """See to it that a transaction is open, and that it is the caller's: raises BadTransaction
        where each statement would be its own.
        """

    async def ask(self, text: str, values: Sequence[object]) -> Sequence[Any]:
        """The rows of a statement whose parameters are $1, $2 and so on."""


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
    """A session begins a transaction by itself with its first statement, unless it was told to
    commit each.
    """

    def __init__(self, session: Any, library: Any) -> None:
        self._session, self._library = session, library

    async def begin(self) -> None:
        connection = await self._connection()
        # The driver hears of the transaction no earlier than with a statement.
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
    """Raises BadTransaction for what is none of them."""
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
            f"a {kind.__name__} of {kind.__module__.partition('.')[0]} cannot be waited for; give"
            f" {TAKEN}, or call the SQL function gesta_submit in your transaction (docs/within.md)"
        )
    raise BadTransaction(f"a {kind.__name__} is no connection of a known library; give {TAKEN}")


def _not_open(how: str) -> BadTransaction:
    return BadTransaction(
        f"no transaction is open on it, so there is nothing to be part of; open one first: {how}"
    )


def raise_of_caller(place: str, error: Exception) -> NoReturn:
    """Raise an error of the caller's library in our words, or as it is where it is none of
    theirs.
    """
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
        told = (
            f"the outbox of {place} is not there ({reason}); give a connection to the same database"
            " as the engine's url (GESTA_URL)"
        )
        raise BadTransaction(told) from error
    if state == FENCED:
        detail = getattr(cause, "detail", None) or getattr(
            getattr(cause, "diag", None), "message_detail", None
        )
        raise fenced(place, detail) from error
    if state == "42501":
        told = (
            f"its user may not write into the outbox of {place} ({reason}); grant it usage on the"
            " schema and execute on defer: docs/within.md"
        )
        raise BadTransaction(told) from error
    raise StoreError(
        f"{place}: your connection failed ({reason}); nothing was written. Roll your transaction"
        " back"
    ) from error
