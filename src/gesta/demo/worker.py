"""`python -m gesta.demo.worker URL`: the process of the demo that works on the store, and that the demo kills.

Ends when its standard input does, so that it outlives nobody: however the demo ends, the pipe between the two is closed.
"""

from __future__ import annotations

import asyncio
import sys

from gesta.engine import Engine
from gesta.flows import webhook
from gesta.runtime import run
from gesta.settings import Settings, load

READY = b"ready\n"
#: The receiver of the demo is on this machine, which the private-address guard would not let a message reach.
LOOPBACK = "127.0.0.0/8"


def demo_settings(url: str) -> Settings:
    """The settings of both processes of the demo."""
    # All in one store, whatever the environment says: its worker must not take the jobs of others.
    return load({"url": url, "queue_url": url, "allow_private": [LOOPBACK]})


async def work(url: str) -> None:
    async with Engine(settings=demo_settings(url), flows=[webhook.flow()]):
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        await _end_of_input()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    transport.close()


if __name__ == "__main__":
    run(work(sys.argv[1]))
