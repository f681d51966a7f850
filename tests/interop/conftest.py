import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_queue
from gesta.testing.harnesses.redis import SharedCluster, SharedServer
from tests.interop.peer import bullmq

SERVERS: dict[str, type[SharedServer] | type[SharedCluster]] = {
    "server": SharedServer,
    "cluster": SharedCluster,
}


#: Both majors and both kinds of servers. BullMQ's scripts are the same on both kinds, so that each
#: major is put on one; the tests marked `every_setting` run on all four.
SETTINGS = [(5, "server"), (6, "cluster")]
OTHER_SETTINGS = [(6, "server"), (5, "cluster")]


def pytest_generate_tests(metafunc):
    if "setting" not in metafunc.fixturenames:
        return
    marks = metafunc.definition.iter_markers("parametrize")
    if any("setting" in mark.args[0] for mark in marks):
        return
    is_wide = metafunc.definition.get_closest_marker("every_setting") is not None
    chosen = SETTINGS + (OTHER_SETTINGS if is_wide else [])
    # Shared processes: all tests of one setting after each other.
    metafunc.parametrize("setting", chosen, indirect=True, ids=str, scope="module")


@pytest.fixture(scope="module")
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
