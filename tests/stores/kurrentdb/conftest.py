import pytest

from gesta.runtime.clock import SystemRuntime
from gesta.stores.kurrentdb import open_events_at
from gesta.stores.kurrentdb.connection import Connection, address_of
from gesta.testing.kurrentdb_double import DoubleProcess, KurrentDBDouble


@pytest.fixture
async def double():
    """The protocol double, in this process."""
    async with KurrentDBDouble() as double:
        yield double


@pytest.fixture
async def double_process():
    """The protocol double as a process that a test may kill."""
    async with DoubleProcess() as process:
        yield process


@pytest.fixture
async def open_events(double):
    """Opens the event store as often as a test wants: each is like a process of its own."""
    opened = []

    async def open_one():
        ports = await open_events_at(address_of(double.url), SystemRuntime(), settle_seconds=0)
        opened.append(ports)
        return ports

    yield open_one
    for ports in opened:
        await ports.close()


@pytest.fixture
async def raw(double):
    """Calls by themselves, to look at what the store wrote."""
    connection = Connection(address_of(double.url))
    yield connection
    await connection.close()
