"""Port: a fence keeps all processes from writing to a store, or to the part of a tenant.

`gesta copy` puts fences up (maintenance/store_copy). Reading stays possible. Without a fence this
costs nothing.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gesta.ports.job_queue import Job

#: left: the content was copied to another store. filling: it is being copied from another store.
FenceKind = Literal["left", "filling"]


class Fence(msgspec.Struct, frozen=True):
    """Why nothing is written. `other`: the other store, without a password."""

    kind: FenceKind
    other: str
    #: The tenant whose part was copied; None: all. A `filling` fence has no tenant.
    tenant: str | None = None


class Fences(Protocol):
    """What fences stop until they are taken down.

    left: every write, except storing a version of an existing secret, and reports of processes. Of
    one tenant: its events and its secrets. filling: jobs are neither put, undispatched nor leased,
    and jobs of slow endpoints not claimed. All other writes fill the store.
    """

    async def put_up(self, fence: Fence) -> None:
        """From this commit on, the writes that it stops raise Fenced in every process.

        On disk when it returns. A repeated fence replaces the earlier one.
        """

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        """Remove the fence, if it is up, and put jobs, in one commit; on disk when it returns.

        A job that is live stays as it is.
        """

    async def standing(self) -> list[Fence]:
        """Every fence that is up, by kind and tenant."""
