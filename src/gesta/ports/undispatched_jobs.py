"""Port: jobs that the projector has written and the relay has not yet put into the queue.

Needed where the queue is in another database than the views: a store that keeps undispatched jobs
can be combined with any queue (stores/separate_queue.py).
"""

from collections.abc import Sequence
from typing import Protocol

from gesta.ports.checkpoints import Move
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Quarantined, View


class UndispatchedJobs(Protocol):
    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        """Views, checkpoints and undispatched jobs in one commit.

        A job that is undispatched already stays as it is. False: another projector moved one of
        the checkpoints; nothing was written.
        """

    async def undispatched(self, limit: int, without: Sequence[str] = ()) -> list[Job]:
        """The next jobs to put, fair between tenants, of all flows `without` these.

        They stay undispatched.
        """

    async def find_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        """Which of these jobs are undispatched."""

    async def remove_undispatched(self, job_ids: Sequence[str]) -> set[str]:
        """Remove jobs that are in the queue or no longer wanted; those that were there."""
