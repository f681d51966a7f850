"""Views and a job queue on Redis, Valkey or their Cluster; the queue has the layout of BullMQ 5
and 6.
"""

from gesta.ports.stores import ViewPorts
from gesta.runtime.clock import Runtime
from gesta.stores.redis.connection import Redis, address_of
from gesta.stores.redis.read_model import RedisReadModel


async def open_views(url: str, _: Runtime) -> ViewPorts:
    """Raises BadSettings for a server that may lose keys, StoreError where it does not answer."""
    redis = Redis(address_of(url))
    try:
        await redis.check()
    except BaseException:
        await redis.close()
        raise
    model = RedisReadModel(redis)
    return ViewPorts(
        read_model=model,
        sweep_index=model,
        positions=model,
        close=redis.close,
        name=redis.address.name,
    )
