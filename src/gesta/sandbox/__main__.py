"""`python -m gesta.sandbox`: the fakes in a process of their own.

Prints one JSON line once it listens; ends on SIGINT or SIGTERM.
"""

import argparse
import sys

import msgspec
from aiohttp import web

from gesta.runtime.clock import SystemRuntime
from gesta.sandbox import FakeWebhookReceiver, Sandbox
from gesta.sandbox.server import HELP, SHUTDOWN_SECONDS, address, loopback_socket, sandbox_app
from gesta.sandbox.smtp_server import SmtpFace


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
    sandbox = Sandbox(FakeWebhookReceiver(options.secret))
    listening = loopback_socket(options.port)
    url = address(listening)
    sandbox.ses.sns.url = f"{url}/ses"

    smtp = SmtpFace(sandbox.smtp, SystemRuntime(), loopback_socket())

    async def announce(_: web.Application) -> None:
        await smtp.start()
        faces = {face.name: f"{url}/{face.name}" for face in sandbox} | {"smtp": smtp.url}
        addresses = {"port": listening.getsockname()[1], "url": url} | faces
        sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
        sys.stdout.flush()

    app = sandbox_app(sandbox, SystemRuntime())
    app.on_startup.append(announce)
    app.on_cleanup.append(lambda _: smtp.close())
    web.run_app(
        app,
        sock=listening,
        print=None,
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        handler_cancellation=True,
    )


if __name__ == "__main__":
    main()
