"""The store that is measured, and the bare loop beside it: the same rows on the same disk or
server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import apsw

from benchmarks.child import run_module
from gesta.runtime import settings as process_settings
from gesta.runtime.clock import SystemRuntime
from gesta.runtime.settings import Settings
from gesta.testing.scratch_store import (
    POSTGRESQL,
    REDIS,
    ChosenStore,
    file_url,
    fresh_master_key,
    is_postgresql,
    scratch_store,
    server_url,
    with_schema,
)
from gesta.testing.valkey_server import ValkeyServer


class RawRun(NamedTuple):
    requests_per_second: float
    #: What the bare loop wrote to.
    store: str


@dataclass(frozen=True)
class BenchStore:
    settings: Settings
    #: For the files of the run; the disk of the store, unless that is on another's server.
    folder: Path
    is_here: bool
    chosen: ChosenStore
    #: Closes the servers of `another`.
    exits: AsyncExitStack
    valkeys: list[ValkeyServer] = field(default_factory=list)

    async def another(self, name: str) -> Settings:
        """Those of one more store, as fresh as this one was, where that is a file of our own, or
        servers of our own with Valkey among them: a peer gets an empty Valkey each time, too. Else
        of this one.
        """
        if self.chosen == ChosenStore():
            return replace(self.settings, url=file_url(self.folder / f"{name}.db"))
        if self.chosen != ChosenStore(POSTGRESQL, REDIS, REDIS):
            return self.settings
        server = await self.exits.enter_async_context(ValkeyServer(durable=True, below=self.folder))
        self.valkeys.append(server)
        url = with_schema(self.settings.url, f"bench_{name.replace('-', '_')}")
        return replace(self.settings, url=url, queue_url=server.url, views_url=server.url)

    async def rest(self) -> None:
        """Wait until the Valkey servers do nothing more in the background."""
        for server in self.valkeys:
            await server.rest()

    async def raw(self, requests: int, batch: int, history: int) -> RawRun:
        """The bare loop in a process of its own."""
        if is_postgresql(self.settings.url):
            given = server_url(self.settings.url) + "\n"
            rate, version = (
                await run_module("benchmarks.raw_postgresql", (requests, batch, history), given)
            ).split(" ", 1)
            return RawRun(float(rate), f"PostgreSQL {version}")
        rate = await run_module("benchmarks.raw_sqlite", (requests, batch, history, self.folder))
        return RawRun(float(rate), f"SQLite {sqlite3.sqlite_version}")

    def name(self, raw: RawRun) -> str:
        """What the engine wrote to, with its version: the server of the bare loop, or a SQLite
        library of gesta's own.
        """
        return (
            raw.store if is_postgresql(self.settings.url) else f"SQLite {apsw.sqlite_lib_version()}"
        )


@asynccontextmanager
async def bench_store(chosen: ChosenStore, folder: Path) -> AsyncIterator[BenchStore]:
    """The store that the options name, else a fresh file inside `folder`."""
    runtime = SystemRuntime()
    async with scratch_store(chosen, folder, "bench", runtime) as trial:
        if trial.is_ours:
            # Nothing of the environment counts, and the key is not shown: it is of no use
            # when the store is gone.
            key = trial.master_key or fresh_master_key(runtime)
            settings = Settings(
                url=trial.url,
                queue_url=trial.queue_url,
                views_url=trial.views_url,
                master_key=key,
            )
        else:
            settings = process_settings.load(trial.urls)
        async with AsyncExitStack() as exits:
            yield BenchStore(settings, folder, trial.is_here, chosen, exits)
