import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.stores.redis.connection import Redis, address_of
from gesta.testing.harnesses.redis import SharedServer
from gesta.testing.valkey_server import ValkeyServer


@pytest.fixture
async def redis_url():
    """Queues of its own on the server that all tests of this process share."""
    return f"{await SharedServer.url()}?prefix=t{SystemRuntime().random_bytes(8).hex()}"


@pytest.fixture
async def server():
    """A server of its own, for tests that stop, flush or reconfigure it. It keeps its data."""
    async with ValkeyServer(durable=True) as server:
        yield server


@pytest.fixture
async def ports(redis_url):
    """A queue on the server's clock."""
    ports = await open_queue(redis_url, SystemRuntime())
    yield ports
    await ports.close()


@pytest.fixture
async def raw(redis_url):
    """Commands by themselves, to look at what a queue wrote."""
    redis = Redis(address_of(redis_url))
    yield redis
    await redis.close()
