import pytest

from gesta.runtime.clock import SystemRuntime
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
