"""Jobs that a Node service put into a queue of ours with the real BullMQ.

`take` leaves them alone. Here they are leased as BullMQ's own workers do it: a job whose holder
dies comes back, and its producer gets the result in BullMQ's way. What such a job means, and how it
becomes a request, is not decided here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gesta.stores.redis.connection import Arg, Call, Redis, script
from gesta.stores.redis.keys import OwnKeys, QueueKeys, flow_of_queue, queue_name

#: Data beyond this is not fetched: `data` is then None, and the job should be failed.
DATA_BYTES_MAX = 1_048_576
#: BullMQ keeps all finished jobs unless the job says otherwise.
KEEP_ALL = -1

ForeignSettled = Literal["done", "lost", "absent"]


class ForeignJob(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    id: str
    name: str
    #: JSON as the producer wrote it; None: it is larger than DATA_BYTES_MAX.
    data: str | None
    size: int
    opts: dict[str, Any]
    timestamp_ms: int
    #: How often a worker has started it, this one included.
    starts: int
    token: str
    #: BullMQ wants the job failed with this reason, because it has stalled too often.
    deferred_failure: str | None = None


class Completed(msgspec.Struct, frozen=True):
    """`value` is the result for the producer."""

    job: ForeignJob
    value: Any


class Failed(msgspec.Struct, frozen=True):
    """For good: attempts that the job has left are not used."""

    job: ForeignJob
    reason: str


class PutBack(msgspec.Struct, frozen=True):
    """The next worker gets it first."""

    job: ForeignJob


ForeignSettlement = Completed | Failed | PutBack


class RedisForeignJobs:
    def __init__(
        self, redis: Redis, worker: str, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._redis, self._worker, self._now_ms = redis, worker, now_ms
        self._own = OwnKeys(redis.address.prefix)

    async def take(
        self, token: str, flows: Mapping[str, int], lease_seconds: float
    ) -> list[ForeignJob]:
        """Lease up to `flows[flow]` jobs of each flow. JobQueue.extend renews these leases, too."""
        lease_ms = round(lease_seconds * 1000)
        keys = [self._own.lease(token)]
        args: list[Arg] = [self._now(), token, lease_ms, lease_ms, self._worker, DATA_BYTES_MAX]
        for flow, free in flows.items():
            keys += QueueKeys(self._redis.address.prefix, flow).fixed
            args += [queue_name(flow), free]
        return [_foreign(row, token) for row in await self._call("take_foreign", keys, args)]

    async def settle(self, settlements: Sequence[ForeignSettlement]) -> list[ForeignSettled]:
        """lost: the lease ended and another worker may have the job."""
        args: list[Arg] = [self._now()]
        for one in settlements:
            kind, value, option = _finish(one)
            keep = KEEP_ALL if option is None else _keep(one.job.opts.get(option))
            args += [kind, queue_name(one.job.flow), one.job.id, one.job.token, value, keep]
        answers: list[ForeignSettled] = await self._call("settle_foreign", [], args)
        return answers

    def _now(self) -> int:
        return self._now_ms() if self._now_ms else 0

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        return await self._redis.call(Call(script(name), [*self._own.fixed, *keys], args))


def _foreign(row: Sequence[Any], token: str) -> ForeignJob:
    queue, job_id, name, data, size, opts, timestamp, starts, deferred_failure = row
    return ForeignJob(
        flow=flow_of_queue(queue),
        id=job_id,
        name=name,
        data=data if int(size) <= DATA_BYTES_MAX else None,
        size=int(size),
        opts=_options(opts),
        timestamp_ms=int(timestamp),
        starts=int(starts),
        token=token,
        deferred_failure=deferred_failure or None,
    )


def _options(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _finish(one: ForeignSettlement) -> tuple[str, bytes | str, str | None]:
    """BullMQ's set, the value, and the option that says how many finished jobs are kept."""
    if isinstance(one, Completed):
        return "completed", msgspec.json.encode(one.value), "removeOnComplete"
    if isinstance(one, Failed):
        return "failed", one.reason, "removeOnFail"
    return "wait", "", None


def _keep(option: Any) -> int:
    """true: none. A number or {count}: so many. Everything else: all."""
    if option is True:
        return 0
    if isinstance(option, dict):
        option = option.get("count")
    if isinstance(option, int) and not isinstance(option, bool) and option >= 0:
        return option
    return KEEP_ALL
