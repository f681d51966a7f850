"""What the exit code of a command says. Scripts build on it; a change is a line in CHANGELOG.md."""

from __future__ import annotations

from gesta.errors import (
    BadInput,
    Conflict,
    GestaError,
    NotFound,
    NotYet,
    PoisonEvent,
    StoreError,
    TryLater,
)

FAILED = 1
BAD_INPUT = 2
NOT_FOUND = 3
CONFLICT = 4
NOT_YET = 5
STORE_UNUSABLE = 6
TRY_LATER = 7

MEANINGS = {
    0: "done",
    FAILED: "failed or refused",
    BAD_INPUT: "wrong usage or bad input, nothing was written",
    NOT_FOUND: "not found",
    CONFLICT: "the key was used with other content",
    NOT_YET: "no outcome within the time given",
    STORE_UNUSABLE: "the store cannot be used",
    TRY_LATER: "too much is waiting or the disk is nearly full, nothing was written",
    130: "interrupted",
}

_CODES: dict[type[GestaError], int] = {
    BadInput: BAD_INPUT,
    NotFound: NOT_FOUND,
    Conflict: CONFLICT,
    NotYet: NOT_YET,
    PoisonEvent: STORE_UNUSABLE,
    StoreError: STORE_UNUSABLE,
    TryLater: TRY_LATER,
}


def exit_code(error: GestaError) -> int:
    """The code of the error's nearest kind; what has none of its own failed or was refused."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), FAILED)
