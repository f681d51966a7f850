"""Port: a fence keeps everybody from writing to a store, or to a tenant's part of it, once its
content has another home.

`gesta copy` puts it up (copying/). Reading stays possible. While no fence stands, it costs nothing.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gesta.ports.job_queue import Job

#: left: the content was copied to another store. filling: it is being copied from another store.
FenceKind = Literal["left", "filling"]


class Fence(msgspec.Struct, frozen=True):
    """Why nothing is written. `other` is the other store as people may read it, without a
    password.
    """

    kind: FenceKind
    other: str
    #: Whose part was copied; None: everything. Only what has left can be one tenant's.
    tenant: str | None = None


class Fences(Protocol):
    """What they stop, until they are taken down.

    left: every write but that of a secret's version that stands already; of one tenant, its events
    and its secrets alone.
    filling: jobs are neither put, pending nor taken. Everything else goes on, so that the store can
    be filled.
    """

    async def put_up(self, fence: Fence) -> None:
        """From this commit on what it stops raises Fenced, in every process; on disk when this
        returns.

        Repeated, the last one counts.
        """

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        """In one commit it goes, if it stands, and these jobs are put; one that is live stays as it
        is.

        On disk when this returns.
        """

    async def standing(self) -> list[Fence]:
        """Every fence that stands, by kind and tenant."""
