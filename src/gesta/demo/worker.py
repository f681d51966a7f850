"""`python -m gesta.demo.worker`: the worker process of the demo, which the demo kills.

The first line of its standard input is the store, a ScratchStore as JSON, because a process list
would show the passwords in it. The process ends with its standard input, so it never outlives the
demo.
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
#: The receiver of the demo is on this machine, which the private-address guard refuses by default.
LOOPBACK = "127.0.0.0/8"


def demo_settings(store: ScratchStore) -> Settings:
    """The settings of both processes of the demo."""
    # Overrides the environment: the worker must not execute the jobs of another store.
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
