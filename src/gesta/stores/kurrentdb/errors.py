"""The errors of KurrentDB's client as StoreErrors that say what to do."""

import asyncio
from typing import NoReturn

import grpc
from kurrentdbclient.exceptions import (
    AccessDeniedError,
    DeadlineExceededError,
    DiscoveryFailedError,
    GrpcError,
    KurrentDBClientError,
    MaximumAppendSizeExceededError,
    NodeIsNotLeaderError,
    ProgrammingError,
    UnauthenticatedError,
)

from gesta.errors import GestaError, StoreError

FAILURES = (
    KurrentDBClientError,
    ProgrammingError,
    grpc.RpcError,
    grpc.aio.UsageError,
    asyncio.CancelledError,
    OSError,
)
_PERHAPS = "it may have been written; a repetition is recognised"


def raise_as_store_error(place: str, error: BaseException) -> NoReturn:
    """Raise this error in our words, or as it is where it is not the client's."""
    if isinstance(error, GestaError):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        # The client closed its connection to make a new one while this call was under way.
        raise StoreError(
            f"{place}: the connection was closed during a call; {_PERHAPS}. gesta reconnects by"
            " itself"
        ) from error
    raise _as_store_error(place, error, str(error).strip() or type(error).__name__) from error


def _as_store_error(place: str, error: BaseException, reason: str) -> StoreError:
    if isinstance(error, AccessDeniedError | UnauthenticatedError):
        return StoreError(
            f"{place}: the server does not accept this user ({reason}); nothing was written. Check"
            " user and password, and the access rights of the user for $all"
        )
    if isinstance(error, MaximumAppendSizeExceededError):
        return StoreError(
            f"{place}: the events are larger than the server accepts ({reason}); nothing was"
            " written. Raise its MaxAppendSize to 4 MiB"
        )
    if isinstance(error, DiscoveryFailedError | NodeIsNotLeaderError):
        return StoreError(
            f"{place}: no leader of the cluster answers ({reason}); {_PERHAPS}. gesta reconnects"
            " by itself"
        )
    if isinstance(error, GrpcError | DeadlineExceededError | grpc.RpcError | OSError):
        return StoreError(
            f"{place}: the server does not answer ({reason}); {_PERHAPS}. gesta reconnects by"
            " itself; is it running, and is the address right?"
        )
    return StoreError(f"{place}: {reason}; {_PERHAPS}")
