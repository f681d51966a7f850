"""`python -m gesta.demo.worker`: the process of the demo that works on the store, and that the demo
kills.

The first line of its standard input is the store, a TrialStore as JSON: a list of processes would
show the passwords in it. Ends when its standard input does, so that it outlives nobody: however the
demo ends, the pipe between the two is closed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gesta.demo.orders import installed_flows
from gesta.engine.engine import Engine
from gesta.runtime.clock import run
from gesta.runtime.settings import Settings, load
from gesta.testing.scratch_store import ScratchStore

READY = b"ready\n"
#: The receiver of the demo is on this machine, which the private-address guard would not let a
#: message reach.
LOOPBACK = "127.0.0.0/8"


def demo_settings(store: ScratchStore) -> Settings:
    """The settings of both processes of the demo."""
    # All in one store, whatever the environment says: its worker must not take the jobs of others.
    return load(
        {
            **store.urls,
            "master_key": store.master_key,
            "allow_private": [LOOPBACK],
        }
    )


async def work() -> None:
    async with standard_input() as lines:
        store = msgspec.json.decode(await lines.readline(), type=ScratchStore)
        async with Engine(settings=demo_settings(store), flows=installed_flows()):
            sys.stdout.buffer.write(READY)
            sys.stdout.flush()
            await lines.read()


@asynccontextmanager
async def standard_input() -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        yield reader
    finally:
        transport.close()


if __name__ == "__main__":
    run(work())
