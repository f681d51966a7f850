"""The parts of the demo: a receiver in this process, a store, and a worker process that can be
killed.
"""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gesta.demo.orders import (
    RETIRED_PATH,
    Door,
    OrderReceiver,
    doors_of,
    installed_flows,
    store_config,
)
from gesta.demo.screen import Screen
from gesta.demo.worker import demo_settings
from gesta.demo.worker_process import WorkerProcess
from gesta.engine.engine import Engine
from gesta.errors import BadSettings
from gesta.flows import webhook
from gesta.runtime.clock import Runtime
from gesta.runtime.redaction import scrub
from gesta.sandbox import Sandbox
from gesta.sandbox.server import SandboxServer
from gesta.sandbox.stripe import FakeStripe
from gesta.testing.scratch_store import ScratchStore

#: The shop's two endpoints: one works, one has moved.
WAREHOUSE, ACCOUNTING = "warehouse", "accounting"


@dataclass(frozen=True)
class Stage:
    #: Submits and reads; the worker does all work.
    engine: Engine
    receiver: OrderReceiver
    #: The fakes of Slack, a mail server and an SMS provider.
    doors: Mapping[str, Door]
    #: The fake of Stripe.
    stripe: FakeStripe
    #: The address of all of them.
    url: str
    #: The same with the path of the receiver's webhooks.
    address: str
    worker: WorkerProcess
    screen: Screen
    runtime: Runtime


@asynccontextmanager
async def set_up(
    store: ScratchStore, folder: Path, screen: Screen, runtime: Runtime
) -> AsyncIterator[Stage]:
    """Start everything; stop everything in the end, whatever happens."""
    secret = "whsec_" + base64.b64encode(runtime.random_bytes(24)).decode()
    receiver = OrderReceiver(secret)
    sandbox = Sandbox(receiver)
    async with (
        SandboxServer(sandbox, runtime) as server,
        Engine(settings=demo_settings(store), flows=installed_flows(), work=False) as engine,
        WorkerProcess(
            "gesta.demo.worker", store, log=folder / "worker.log", runtime=runtime
        ) as worker,
    ):
        await _refuse_foreign_store(engine, scrub(store.url))
        screen.say(f"The store, fresh and empty: {scrub(store.url)}")
        for note in engine.notes:
            screen.aside(f"Note: {note}.")
        address = f"{server.url}/{receiver.name}"
        screen.say(
            f"The receiver on {server.url} plays the outside world. It counts every message and"
            " what it did about it."
        )
        await _store_endpoint(engine, WAREHOUSE, address, secret)
        await _store_endpoint(engine, ACCOUNTING, server.url + RETIRED_PATH, secret)
        await store_config(engine, server)
        await worker.start()
        screen.say(f"The worker runs in a process of its own: {worker.pid}.")
        yield Stage(
            engine=engine,
            receiver=receiver,
            doors=doors_of(sandbox),
            stripe=sandbox.stripe,
            url=server.url,
            address=address,
            worker=worker,
            screen=screen,
            runtime=runtime,
        )


async def _store_endpoint(engine: Engine, code: str, url: str, secret: str) -> None:
    await engine.admin.put_config(webhook.ENDPOINT, code, {"url": url, "secret": secret})


async def _refuse_foreign_store(engine: Engine, url: str) -> None:
    """Refuse a store with requests: the worker would execute them, and be killed while it does."""
    admin = engine.admin
    if (
        await admin.is_worked_on()
        or await admin.unseen(1)
        or await admin.counts()
        or await admin.list_config()
    ):
        raise BadSettings(
            f"url: {url} is in use; the demo kills its own worker, so give it an empty store, or"
            " leave --url out"
        )
