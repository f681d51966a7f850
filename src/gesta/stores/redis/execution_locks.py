"""The `send-lock` or `execute-lock` of a request, in the slot of its tenant (R0-15, R1-16).

The lease in the queue decides who executes. The lock shows it to programs that know the documents
only, and keeps a second job of the same request from starting while the first one runs. Its value
is job id and token: a newer lease of the same job takes it over, and only the holder removes it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gesta.ports.job_queue import Job, LeasedJob
from gesta.runtime.clock import Runtime
from gesta.stores.redis.connection import Arg, Call, Redis, script
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
    return lock_of_job(leased.job, leased.token)


def lock_of_job(job: Job, token: str) -> Lock:
    key = RequestKeys(job.flow, job.tenant, job.request_id).lock
    return Lock(key, job.id, token, queue_name(job.flow))


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
        return self.locked(locks, await self._redis.calls(self.lock_calls(locks, replaced)))

    def lock_calls(
        self,
        locks: Sequence[Lock],
        replaced: Mapping[Lock, str] | None = None,
        *,
        are_leased: bool = True,
    ) -> list[Call]:
        """The calls that set these locks; `locked` takes their answers.

        Not yet leased: another worker may have the job, and keeps its lock.
        """
        calls = []
        for group in self._groups(locks):
            args: list[Arg] = [LOCK_MS, int(are_leased), *(one.value for one in group)]
            if replaced:
                args += [replaced[one] for one in group]
            calls.append(Call(script("lock"), [one.key for one in group], args))
        return calls

    def locked(self, locks: Sequence[Lock], answers: Sequence[Sequence[str]]) -> dict[Lock, str]:
        """Remember what is locked now; the locks that another job holds, with their values."""
        now, refused = self._runtime.monotonic(), {}
        for group, answer in zip(self._groups(locks), answers, strict=True):
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
        if not self._redis.address.is_cluster:
            return [list(locks)] if locks else []
        groups: dict[int, list[Lock]] = {}
        for one in locks:
            groups.setdefault(slot_of(one.key), []).append(one)
        return list(groups.values())
