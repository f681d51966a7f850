"""serve: all stations in one process, until somebody stops it."""

from __future__ import annotations

import asyncio
import signal
from importlib.metadata import version

from gesta.cli.invocation import Invocation
from gesta.cli.output import tell


async def serve(call: Invocation) -> None:
    r"""Run everything in one process: projector, worker and sweep. Ctrl-C or SIGTERM lets running attempts end first.

    Flows of your own come from a program: gesta serve --app shop.jobs:engine. Without one, the built-in flows run with what
    gesta.toml says in \[flows.webhook] and so on.
    """
    from gesta.scrub import scrub

    engine = call.engine(work=True)
    stopped = stop_signal()
    async with call.opened(engine, create=True):
        settings = call.settings
        tell(f"gesta {version('gesta')} works on {scrub(settings.url)} (url from {settings.sources['url']})")
        tell(f"flows: {', '.join(sorted(engine.flows)) or 'none'}")
        if engine.subscriptions:
            tell(f"subscriptions: {', '.join(sorted(engine.subscriptions))}")
        tell("ready; Ctrl-C stops it")
        await stopped.wait()
        running = engine.road.pool.in_flight
        tell(f"stopping; attempts that may end first: {running} (Ctrl-C cuts them)" if running else "stopping")
    tell("stopped")


def stop_signal() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM. A second one kills at once: nobody is locked in, and a killed gesta loses nothing."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for each in signals:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stopped.set()

    for each in signals:
        loop.add_signal_handler(each, stop)
    return stopped
