"""Port: how far each consumer of the log has read.

Projectors, subscriptions and store copies keep their position here. A schedule keeps the time of
its last run, in epoch milliseconds, which is beyond every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from gesta.ports.read_model import Quarantined


def dispatched_of(name: str) -> str:
    """The checkpoint up to which jobs were put for the projection with the checkpoint `name`.

    `dispatched/3` belongs to `projector/3`.
    """
    return f"dispatched{name.removeprefix('projector')}"


class Move(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint moved by compare-and-set: of two projectors, only one can move it."""

    name: str
    before: int
    after: int
    #: The position of `dispatched_of(name)` when the events were folded. If it has changed, a
    #: rebuild has swapped the views since: then nothing is written, even if the swap moved the
    #: checkpoint back to `before`. None: nothing was folded.
    dispatched: int | None = None


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """The position of a consumer of the log, and the error that stops it."""

    name: str
    position: int
    error: str = ""
    #: When it failed first.
    failed_at_ms: int | None = None


class Checkpoints(Protocol):
    async def position(self, name: str) -> int:
        """The position of a checkpoint; 0 if it does not exist."""

    async def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints, by name."""

    async def begin(self, name: str, position: int) -> int:
        """Create the checkpoint unless it exists, on disk before this returns; its position."""

    async def move(self, moves: Sequence[Move], quarantined: Sequence[Quarantined] = ()) -> bool:
        """Make all moves and add the quarantined events, in one commit.

        False: another process moved one of the checkpoints; nothing was written.
        """

    async def forget(self, name: str) -> None:
        """Delete a checkpoint whose consumer is gone, so that it no longer holds back retention."""

    async def note_error(self, name: str, error: str, at_ms: int) -> None:
        """Note the error that stops a consumer. The first time stays; the next move clears both.

        Does nothing if the checkpoint does not exist.
        """
