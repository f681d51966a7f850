"""Schemas of the server that this test process shares, and engines on them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gesta import Attempt, Done, Engine, Flow, NotFound, Outcome, Payload, Request
from gesta.domain.commands import Rules
from gesta.ports.stores import Stores
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.stores.postgresql import open_stores
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import Connection, Connections, connect, end
from gesta.stores.postgresql.database import Database
from gesta.testing.harnesses.postgresql import SharedServer

MASTER_KEY = base64.b64encode(b"k" * 32).decode()


class Note(Payload, frozen=True):
    text: str = "hello"


async def say_done(payload: Note, attempt: Attempt) -> Outcome:
    return Done(id=payload.text)


NOTE = Flow("test.note", Note, say_done, Rules(on_unknown="resend"))


async def fresh_url(**options: str) -> str:
    """A schema of the shared server that no test has used."""
    parameters = "".join(f"&{name}={value}" for name, value in options.items())
    schema = f"test_{SystemRuntime().random_bytes(8).hex()}"
    return f"{await SharedServer.url()}?schema={schema}{parameters}"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Stores]:
    stores = await open_stores(url, SystemRuntime())
    try:
        yield stores
    finally:
        await stores.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Connection, Database]]:
    """A connection of the test's own; and the database, for its statements."""
    address = address_of(url)
    connection = await connect(address)
    try:
        yield connection, Database(address, Connections(address))
    finally:
        await end(connection)


async def drained(engine: Engine, request_id: str, tenant: str = "default") -> Request:
    """A handle on what may not have been taken out of the outbox yet."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await engine.request(request_id, tenant=tenant)
            except NotFound:
                await asyncio.sleep(0.02)


async def projected(engine: Engine) -> None:
    """Until the views show every event: an outcome is read from the stream itself."""
    async with asyncio.timeout(60):
        while await engine.admin.unseen():
            await asyncio.sleep(0.02)


def engine_at(url: str, flow: Flow = NOTE, **options: Any) -> Engine:
    return Engine(settings=Settings(url=url, master_key=MASTER_KEY), flows=[flow], **options)
