"""The `send-lock` or `execute-lock` of a request, in the slot of its tenant (R0-15, R1-16).

The lease in the queue decides who executes. The lock shows it to programs that know the documents
only, and keeps a second job of the same request from starting while the first one runs. Its value
is job id and token: a newer lease of the same job takes it over, and only the holder removes it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gesta.ports.job_queue import LeasedJob
from gesta.runtime.clock import Runtime
from gesta.stores.redis.connection import Call, Redis, script
from gesta.stores.redis.keys import LOCK_MS, RequestKeys, queue_name, slot_of

#: A lock that is held for so long is renewed (S0-6: at a third of its time).
RENEW_SECONDS = LOCK_MS / 3_000


class Lock(NamedTuple):
    """The lock of a leased job, and the BullMQ queue that the job is in."""

    key: str
    job_id: str
    token: str
    queue: str

    @property
    def value(self) -> str:
        return f"{self.job_id} {self.token}"


def lock_of(leased: LeasedJob) -> Lock:
    job = leased.job
    key = RequestKeys(job.flow, job.tenant, job.request_id).lock
    return Lock(key, job.id, leased.token, queue_name(job.flow))


class ExecutionLocks:
    def __init__(self, redis: Redis, runtime: Runtime) -> None:
        self._redis, self._runtime = redis, runtime
        #: What this process holds, by job id, and when it was set.
        self._held: dict[str, tuple[Lock, float]] = {}

    def of(self, job_id: str, token: str) -> Lock | None:
        """The lock that this process holds for a leased job."""
        lock, _ = self._held.get(job_id, (None, 0.0))
        return lock if lock is not None and lock.token == token else None

    async def lock(
        self, locks: Sequence[Lock], replaced: Mapping[Lock, str] | None = None
    ) -> dict[Lock, str]:
        """The locks that another job holds, with their values. `replaced`: values of jobs that are
        gone, whose locks may be taken.
        """
        groups = self._groups(locks)
        calls = [
            Call(
                script("lock"),
                [one.key for one in group],
                [LOCK_MS, *(one.value for one in group), *(replaced[one] for one in group)]
                if replaced
                else [LOCK_MS, *(one.value for one in group)],
            )
            for group in groups
        ]
        answers = await self._redis.calls(calls)
        now, refused = self._runtime.monotonic(), {}
        for group, answer in zip(groups, answers, strict=True):
            for one, holder in zip(group, answer, strict=True):
                if holder:
                    refused[one] = holder
                else:
                    self._held[one.job_id] = one, now
        return refused

    def unlock_calls(self, locks: Sequence[Lock]) -> list[Call]:
        """The calls that remove these locks."""
        for one in locks:
            if self.of(one.job_id, one.token) is not None:
                del self._held[one.job_id]
        return [
            Call(script("unlock"), [one.key for one in group], [one.value for one in group])
            for group in self._groups(locks)
        ]

    async def renew(self, token: str) -> None:
        """Renew the locks of a token that were set long ago."""
        before = self._runtime.monotonic() - RENEW_SECONDS
        old = [one for one, at in self._held.values() if at <= before and one.token == token]
        if old:
            await self.lock(old)

    def _groups(self, locks: Sequence[Lock]) -> list[list[Lock]]:
        """By slot on a Cluster; all in one call elsewhere."""
        groups: dict[int, list[Lock]] = {}
        for one in locks:
            slot = slot_of(one.key) if self._redis.address.is_cluster else 0
            groups.setdefault(slot, []).append(one)
        return list(groups.values())
