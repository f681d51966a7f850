"""Translates errors of the server and of the client library into StoreError and its kinds."""

from typing import NoReturn

import asyncpg  # type: ignore[import-untyped]
import msgspec

from gesta.errors import Fenced, GestaError, StoreError, StoreFull
from gesta.ports.fences import Fence

#: What is known about a write that failed: it was rolled back, or its answer was lost.
NOTHING = "nothing was written"
PERHAPS = "it may have been written; a repeated append is recognised"

#: The server or the network has ended the connection.
CUT = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    OSError,
    EOFError,
    TimeoutError,
)
#: The client library also raises its own error, for instance if a new connection breaks.
LOST = (*CUT, asyncpg.InternalClientError)
#: The server refuses new connections for now.
NOT_NOW = (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError)
#: What the triggers of a fence raise (migrations/0005_fences.sql).
FENCED = "GST01"
#: What `record_inline` raises if its events do not follow the checkpoints
#: (migrations/0013_inline.sql).
BETWEEN = "GST02"
ACCESS = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)


class Between(StoreError):
    """An inline projection was not possible, because another process appended or held a lock.

    Nothing was written.
    """


def is_answer(error: BaseException) -> bool:
    """Whether the connection can be used again: the server, or we, refused the statement."""
    return isinstance(error, (asyncpg.PostgresError, GestaError)) and not isinstance(error, CUT)


def raise_as_ours(place: str, error: BaseException, written: str) -> NoReturn:
    """Raise an error of server or client library as StoreError, and any other as it is."""
    if isinstance(error, GestaError) or not isinstance(error, (asyncpg.PostgresError, *LOST)):
        raise error
    raise _store_error(place, error, written) from error


def fenced(place: str, detail: str | None) -> Fenced:
    """The error of a fence, which `detail` describes if the library passes it on."""
    fence = msgspec.json.decode(detail, type=Fence) if detail else Fence("left", "another store")
    return Fenced(place, fence.kind, other=fence.other, tenant=fence.tenant)


#: Kinds of errors with the text that explains them; the first that fits counts.
_TEXTS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    (
        (asyncpg.SerializationError, asyncpg.DeadlockDetectedError),
        "another transaction changed the same rows ({reason}); {written}. Try again",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        "this server is read-only ({reason}); {written}. Name the primary server",
    ),
    (
        ACCESS,
        (
            "the server refuses this user or statement ({reason}); {written}. Check user, password"
            " and grants"
        ),
    ),
    (
        (
            asyncpg.UndefinedTableError,
            asyncpg.UndefinedFunctionError,
            asyncpg.InvalidSchemaNameError,
        ),
        (
            "a table or function of gesta is missing from the schema ({reason}); {written}. Restore"
            " the schema, or start with a new one"
        ),
    ),
    (
        NOT_NOW,
        "the server accepts no connection now ({reason}); {written}. gesta retries by itself",
    ),
)
_NO_CONNECTION: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    (
        (asyncpg.InvalidCatalogNameError,),
        "this database does not exist ({reason}); create it first: createdb",
    ),
    (ACCESS, "the server refuses this user ({reason}); check user and password"),
    _TEXTS[-1],
    (
        (asyncpg.PostgresError, *LOST),
        (
            "the server cannot be reached ({reason}); {written}. Check that it runs and that the"
            " address is right"
        ),
    ),
    ((ValueError,), "this address cannot be used ({reason})"),
)


def _store_error(place: str, error: BaseException, written: str) -> StoreError:
    reason = _reason(error)
    if getattr(error, "sqlstate", None) == FENCED:
        return fenced(place, getattr(error, "detail", None))
    if getattr(error, "sqlstate", None) == BETWEEN:
        return Between(f"{place}: {reason}; {NOTHING}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull(place, reason)
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Between(
            f"{place}: another transaction held a lock for too long ({reason}); {NOTHING}. Try"
            " again"
        )
    text = _text_of(error, _TEXTS)
    if text is not None:
        return StoreError(f"{place}: {text.format(reason=reason, written=NOTHING)}")
    if isinstance(error, LOST):
        return StoreError(
            f"{place}: the connection was lost ({reason}); {written}. gesta reconnects by itself"
        )
    return StoreError(f"{place}: {reason}; {NOTHING}")


def raise_unreachable(place: str, error: BaseException) -> NoReturn:
    """Raise why no connection could be opened."""
    text = _text_of(error, _NO_CONNECTION)
    if text is None:
        raise error
    reason = _reason(error)
    raise StoreError(f"{place}: {text.format(reason=reason, written=NOTHING)}") from error


def _text_of(
    error: BaseException, texts: tuple[tuple[tuple[type[BaseException], ...], str], ...]
) -> str | None:
    return next((text for kinds, text in texts if isinstance(error, kinds)), None)


def _reason(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
