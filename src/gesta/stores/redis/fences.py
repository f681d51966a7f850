"""Fences around the queues of a prefix. Every script that writes looks at them first."""

from collections.abc import Sequence

import msgspec

from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job
from gesta.stores.redis.connection import Redis
from gesta.stores.redis.job_queue import RedisJobQueue
from gesta.stores.redis.keys import OwnKeys


class RedisFences:
    """Implements gesta.ports.fences for a queue: fences of one tenant are the event store's."""

    def __init__(self, redis: Redis, queue: RedisJobQueue) -> None:
        self._redis, self._queue = redis, queue
        self._key = OwnKeys(redis.address.prefix)["fences"]

    async def put_up(self, fence: Fence) -> None:
        if fence.tenant is None:
            await self._redis.command("HSET", self._key, fence.kind, msgspec.json.encode(fence))

    async def take_down(self, fence: Fence, jobs: Sequence[Job] = ()) -> None:
        if fence.tenant is None:
            if jobs:
                await self._queue.put_after(fence, jobs)
            else:
                await self._redis.command("HDEL", self._key, fence.kind)

    async def standing(self) -> list[Fence]:
        found = await self._redis.command("HGETALL", self._key)
        return [msgspec.json.decode(found[kind], type=Fence) for kind in sorted(found)]
