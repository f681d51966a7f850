import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.testing.harnesses.redis import SharedCluster, SharedServer
from tests.interop.peer import bullmq

SERVERS: dict[str, type[SharedServer] | type[SharedCluster]] = {
    "server": SharedServer,
    "cluster": SharedCluster,
}


@pytest.fixture(params=[(5, "server"), (6, "server"), (5, "cluster"), (6, "cluster")], ids=str)
def setting(request):
    """The major version of BullMQ, and what it runs on."""
    return request.param


@pytest.fixture
async def url(setting):
    name = SystemRuntime().random_bytes(8).hex()
    return f"{await SERVERS[setting[1]].url()}?prefix={{t{name}}}"


@pytest.fixture
async def ports(url):
    ports = await open_queue(url, SystemRuntime())
    yield ports
    await ports.close()


@pytest.fixture
async def node(setting, url):
    return await bullmq(url, setting[0])
