"""The errors of the server and of redis-py as StoreErrors that say what to do."""

import json
from collections.abc import Sequence
from typing import NoReturn

from redis import exceptions

from gesta.errors import Fenced, GestaError, QueueRefused, StoreError, StoreFull

_PERHAPS = "it may have been written; a repetition is recognised"
_NOTHING = "nothing was written"


def refused(place: str, error: str, cure: str) -> StoreError:
    return StoreError(f"{place}: {error}; {_NOTHING}. {cure}")


def is_wrong_type(error: BaseException) -> bool:
    return isinstance(error, exceptions.ResponseError) and "WRONGTYPE" in str(error)


def raise_as_store_error(place: str, error: BaseException) -> NoReturn:
    """Raise this error in our words, or as it is where it is none of theirs."""
    if isinstance(error, GestaError) or not isinstance(
        error, (exceptions.RedisError, exceptions.RedisClusterException, OSError)
    ):
        raise error
    raise _as_store_error(place, error, str(error).strip() or type(error).__name__) from error


def wrong_type(place: str, wrong: Sequence[tuple[str, str, str]]) -> StoreError:
    """`wrong`: key, the type it has, the type it should have."""
    named = "; ".join(f"{key} is a {found}, not a {wanted}" for key, found, wanted in wrong)
    error = refused(
        place,
        f"another program uses a key of this queue ({named or 'which one is unknown'})",
        "Move that program to another prefix, or delete the key, or name another prefix in the URL:"
        " ?prefix=",
    )
    return QueueRefused(str(error))


def _own_error(place: str, reason: str) -> StoreError | None:
    """What our scripts raise (lua/common.lua)."""
    code, _, text = reason.partition(" ")
    if code == "GESTAFENCE":
        fence, _ = json.JSONDecoder().raw_decode(text)
        return Fenced(place, fence["kind"], other=fence["other"])
    if code == "GESTAVERSION":
        queue, version = text.split(" ")[:2]
        error = refused(
            place,
            f"queue {queue} belongs to {version}, whose layout this version of gesta does not know",
            "It knows bullmq 5 and 6; upgrade gesta, or name another prefix in the URL: ?prefix=",
        )
        return QueueRefused(str(error))
    return None


def _as_store_error(place: str, error: BaseException, reason: str) -> StoreError:
    if own := _own_error(place, reason):
        return own
    if isinstance(error, exceptions.OutOfMemoryError) or reason.startswith("OOM"):
        return StoreFull(place, reason)
    if isinstance(error, exceptions.NoPermissionError) or "NOPERM" in reason:
        return refused(
            place,
            f"the Redis user lacks a permission ({reason})",
            "Grant it: ACL SETUSER <user> ~<prefix>:* ~*:v1:* +@all -@admin -@dangerous +info",
        )
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return refused(
            place, f"the server does not accept this user ({reason})", "Check user and password"
        )
    if isinstance(error, exceptions.ReadOnlyError) or reason.startswith("READONLY"):
        return refused(place, f"this server is a replica ({reason})", "Name the primary server")
    if isinstance(error, exceptions.BusyLoadingError) or reason.startswith(("LOADING", "BUSY ")):
        return refused(place, f"the server is not ready ({reason})", "gesta will try again")
    if isinstance(
        error,
        (
            exceptions.ClusterError,
            exceptions.ClusterDownError,
            exceptions.RedisClusterException,
        ),
    ):
        return StoreError(
            f"{place}: the cluster does not serve this slot now ({reason}); {_PERHAPS}. gesta will"
            " try again"
        )
    if isinstance(error.__context__, ConnectionRefusedError):
        return refused(
            place,
            f"no server accepts connections there ({reason})",
            "Is it running, and is the address right? A running process connects by itself",
        )
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError)):
        return StoreError(
            f"{place}: the server does not answer ({reason}); {_PERHAPS}. gesta reconnects by"
            " itself; is it running, and is the address right?"
        )
    return StoreError(f"{place}: {reason}; {_NOTHING}")
