"""Jobs that a Node service put into a queue of ours with BullMQ. Implements ForeignJobs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gesta.ports.foreign_jobs import (
    Completed,
    Failed,
    ForeignJob,
    ForeignSettled,
    ForeignSettlement,
    JobTexts,
)
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.redis.connection import Arg, Call, Redis, script
from gesta.stores.redis.keys import OwnKeys, QueueKeys, flow_of_queue, queue_name

#: Data beyond this is not fetched. A payload may not be larger either.
DATA_BYTES_MAX = 262_144
#: What is returned of each text of a sampled job.
SAMPLE_BYTES_MAX = 65_536
#: BullMQ keeps all finished jobs unless the job says otherwise.
KEEP_ALL = -1


class RedisForeignJobs:
    def __init__(
        self,
        redis: Redis,
        worker: str,
        runtime: Runtime,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._redis, self._worker, self._now_ms = redis, worker, now_ms
        self._own = OwnKeys(redis.address.prefix)
        #: Set when a marker of BullMQ says that a queue has a job.
        self.may_have_jobs = Signal(runtime)

    async def take(
        self, token: str, flows: Mapping[str, int], lease_seconds: float
    ) -> list[ForeignJob]:
        lease_ms = round(lease_seconds * 1000)
        keys = [self._own.lease(token)]
        args: list[Arg] = [self._now(), token, lease_ms, lease_ms, self._worker, DATA_BYTES_MAX]
        for flow, free in flows.items():
            keys += QueueKeys(self._redis.address.prefix, flow).fixed
            args += [queue_name(flow), free]
        return [_foreign(row, token) for row in await self._call("take_foreign", keys, args)]

    async def settle(self, settlements: Sequence[ForeignSettlement]) -> list[ForeignSettled]:
        args: list[Arg] = [self._now()]
        for one in settlements:
            kind, value, keep = _finish(one)
            args += [kind, queue_name(one.job.flow), one.job.id, one.job.token, value, keep]
        answers: list[ForeignSettled] = await self._call("settle_foreign", [], args)
        return answers

    async def replace_data(self, replacements: Sequence[tuple[ForeignJob, str]]) -> None:
        args: list[Arg] = []
        for job, data in replacements:
            args += [queue_name(job.flow), job.id, job.token, data]
        await self._call("replace_data", [], args)

    async def sample(self, flows: Sequence[str], limit: int) -> list[JobTexts]:
        rows = await self._call("sample", [], [limit, SAMPLE_BYTES_MAX, *map(queue_name, flows)])
        return [_texts(row) for row in rows]

    async def ready(self, timeout_seconds: float) -> None:
        await self.may_have_jobs.wait(timeout_seconds)

    def _now(self) -> int:
        return self._now_ms() if self._now_ms else 0

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[Arg]) -> Any:
        return await self._redis.call(Call(script(name), [*self._own.fixed, *keys], args))


def _foreign(row: Sequence[Any], token: str) -> ForeignJob:
    queue, job_id, name, data, size, opts, timestamp, starts, is_adopted, deferred_failure = row
    return ForeignJob(
        flow=flow_of_queue(queue),
        id=job_id,
        name=name,
        data=data if int(size) <= DATA_BYTES_MAX else None,
        size=int(size),
        opts=_options(opts),
        timestamp_ms=int(timestamp) if timestamp.isdecimal() else 0,
        starts=int(starts),
        token=token,
        is_adopted=bool(is_adopted),
        deferred_failure=deferred_failure or None,
    )


def _options(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _texts(row: Sequence[Any]) -> JobTexts:
    queue, job_id, state, is_own, *fields = row
    texts = {name: text for name, text in zip(fields[::2], fields[1::2], strict=True) if text}
    return JobTexts(flow_of_queue(queue), job_id, state, bool(is_own), texts)


def _finish(one: ForeignSettlement) -> tuple[str, bytes | str, int]:
    """As settle_foreign.lua has it."""
    if isinstance(one, Completed):
        return "completed", msgspec.json.encode(one.value), _keep(one.job, "removeOnComplete")
    if isinstance(one, Failed):
        return "failed", one.reason, _keep(one.job, "removeOnFail")
    return "wait", "1" if one.is_adopted else "", one.delay_ms


def _keep(job: ForeignJob, option: str) -> int:
    """true: none. A number or {count}: so many. Everything else: all."""
    said = job.opts.get(option)
    if said is True:
        return 0
    if isinstance(said, dict):
        said = said.get("count")
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    return KEEP_ALL
