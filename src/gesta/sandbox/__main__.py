"""`python -m gesta.sandbox`: the fakes in a process of their own.

Prints one JSON line once it listens; ends on SIGINT or SIGTERM.
"""

import argparse
import asyncio
import signal
import sys
from urllib.parse import urlsplit

import msgspec

from gesta.runtime.clock import run
from gesta.sandbox import FakeWebhookReceiver, Sandbox
from gesta.sandbox.server import HELP, SandboxServer


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m gesta.sandbox",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        help="refuse webhooks that none of these secrets has signed",
    )
    options = parser.parse_args(arguments)
    run(_serve(Sandbox(FakeWebhookReceiver(options.secret)), options.port))


async def _serve(sandbox: Sandbox, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with SandboxServer(sandbox, port=port) as server:
        faces = {face.name: f"{server.url}/{face.name}" for face in sandbox}
        addresses = {"port": urlsplit(server.url).port, "url": server.url} | faces
        sys.stdout.write(msgspec.json.encode(addresses | {"smtp": server.smtp_url}).decode() + "\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    main()
