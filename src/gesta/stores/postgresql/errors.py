"""The server's and the client library's errors in our words. Nothing of theirs leaves the
adapter.
"""

from typing import Literal, NoReturn

import asyncpg  # type: ignore[import-untyped]
import msgspec

from gesta.errors import Fenced, GestaError, StoreError, StoreFull
from gesta.ports.fences import Fence

#: What is known about a write that failed: nothing of it stands, or it was on its way when the
#: answer was lost.
Written = Literal["nothing was written", "it may have been written: the same again is recognised"]
NOTHING: Written = "nothing was written"
PERHAPS: Written = "it may have been written: the same again is recognised"

#: The server, or something on the way to it, has ended the connection.
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
#: Or the client library has lost its way in what the server sends, as with a connection that breaks
#: in its first moments.
LOST = (*CUT, asyncpg.InternalClientError)
#: The server refuses new connections for now.
NOT_NOW = (asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError)
#: What the triggers of a fence raise (migrations/0005_fences.sql).
FENCED = "GST01"
#: What `record_at_once` raises where its events do not follow what is projected
#: (migrations/0013_inline.sql).
BETWEEN = "GST02"
ACCESS = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)


class Between(StoreError):
    """What is projected and appended in one commit could not be: somebody was in between or in the
    way.

    Nothing was written.
    """


def is_answer(error: BaseException) -> bool:
    """Whether the server said no, or we did: the connection is as good as before."""
    return isinstance(error, (asyncpg.PostgresError, GestaError)) and not isinstance(error, CUT)


def raise_told(place: str, error: BaseException, written: Written) -> NoReturn:
    """Raise this error in our words, or as it is where it is none of theirs."""
    if isinstance(error, GestaError) or not isinstance(error, (asyncpg.PostgresError, *LOST)):
        raise error
    raise _told(place, error, written) from error


def fenced(place: str, detail: str | None) -> Fenced:
    """A fence stands; what it says is in the detail, where the library passes that on."""
    fence = msgspec.json.decode(detail, type=Fence) if detail else Fence("left", "another store")
    return Fenced(place, fence.kind, other=fence.other, tenant=fence.tenant)


def _told(place: str, error: BaseException, written: Written) -> StoreError:
    reason = str(error).strip() or type(error).__name__
    if getattr(error, "sqlstate", None) == FENCED:
        return fenced(place, getattr(error, "detail", None))
    if getattr(error, "sqlstate", None) == BETWEEN:
        return Between(f"{place}: {reason}; {NOTHING}")
    if isinstance(error, asyncpg.DiskFullError):
        return StoreFull(place, reason)
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Between(
            f"{place}: others were at work on the same rows for long ({reason}); {NOTHING}. Try"
            " again"
        )
    if isinstance(error, (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)):
        return StoreError(
            f"{place}: others were at work on the same rows ({reason}); {NOTHING}. Try again"
        )
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreError(
            f"{place}: this server only reads ({reason}); {NOTHING}. Name the primary server"
        )
    if isinstance(error, ACCESS):
        return StoreError(
            f"{place}: the server does not let this user in or do it ({reason}); {NOTHING}. Look at"
            " user, password and grants"
        )
    if isinstance(
        error,
        asyncpg.UndefinedTableError
        | asyncpg.UndefinedFunctionError
        | asyncpg.InvalidSchemaNameError,
    ):
        return StoreError(
            f"{place}: what this gesta needs is gone from the schema ({reason}); {NOTHING}. Restore"
            " it, or start anew"
        )
    if isinstance(error, NOT_NOW):
        return StoreError(
            f"{place}: the server takes no connection now ({reason}); {NOTHING}. It is tried again"
            " by itself"
        )
    if isinstance(error, LOST):
        return StoreError(
            f"{place}: the connection was lost ({reason}); {written}. It is connected again by"
            " itself"
        )
    return StoreError(f"{place}: {reason}; {NOTHING}")


def raise_unreachable(place: str, error: BaseException) -> NoReturn:
    """Why no connection could be made."""
    reason = str(error).strip() or type(error).__name__
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        told = StoreError(f"{place}: there is no such database ({reason}); make it first: createdb")
    elif isinstance(error, ACCESS):
        told = StoreError(
            f"{place}: the server does not let this user in ({reason}); look at user and password"
        )
    elif isinstance(error, NOT_NOW):
        told = StoreError(
            f"{place}: the server takes no connection now ({reason}); {NOTHING}. It is tried again"
            " by itself"
        )
    elif isinstance(error, (asyncpg.PostgresError, *LOST)):
        told = StoreError(
            f"{place}: the server cannot be reached ({reason}); {NOTHING}. Is it running, and is"
            " the address right?"
        )
    elif isinstance(error, ValueError):
        told = StoreError(f"{place}: this address cannot be used ({reason})")
    else:
        raise error
    raise told from error
