"""The scratch store of a demo or a benchmark, removed afterwards.

`--url` of both commands chooses it:

Nothing                the file gesta.db in the folder of the run
postgresql             a new PostgreSQL server (postgres_server.py)
postgresql://…         the user's server, with a new schema that is dropped afterwards
anything else          the store with this URL; its content is kept

`--events-url` is another name of it: the events are in the durable store. `--queue-url` and
`--views-url`: `redis` starts a new Valkey server (valkey_server.py); anything else is used
unchanged.
"""

import base64
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import structs

from gesta.errors import BadSettings, StoreError
from gesta.runtime.clock import Runtime
from gesta.runtime.redaction import scrub
from gesta.security.envelope_encryption import KEY_BYTES
from gesta.testing.postgres_server import PostgresServer
from gesta.testing.valkey_server import ValkeyServer

POSTGRESQL = "postgresql"
REDIS = "redis"
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
#: Parameters of a URL that are for gesta's adapter and not for the server.
_OURS = frozenset({"listen", "pool", "schema"})


class ScratchStore(msgspec.Struct, frozen=True):
    """Where the store is, for every process of the run."""

    url: str
    #: Created for this store; None: in the key file or the settings of the named store.
    master_key: str | None
    #: Whether it was created for this run.
    is_ours: bool = True
    #: Whether its disk is that of the run's folder.
    is_here: bool = True
    #: None: in the store.
    queue_url: str | None = None
    views_url: str | None = None

    @property
    def urls(self) -> dict[str, str]:
        """The settings that name its databases, whatever the environment says."""
        return {
            "url": self.url,
            "queue_url": self.queue_url or self.url,
            "views_url": self.views_url or self.url,
            "vault_url": self.url,
        }


@dataclass(frozen=True)
class ChosenStore:
    """The store options of a demo or a benchmark."""

    url: str | None = None
    queue_url: str | None = None
    views_url: str | None = None


def chosen_url(url: str | None, events_url: str | None) -> str | None:
    """The durable store of `--url` and `--events-url`, which is where the events are."""
    if events_url is None:
        return url
    if url not in (None, events_url) or events_url.startswith("kurrentdb"):
        raise BadSettings(
            "events_url: a scratch store keeps the events where the rest of the record is; write"
            " --events-url postgresql or a URL of SQLite or PostgreSQL, and no other --url"
        )
    return events_url


def is_postgresql(url: str | None) -> bool:
    return url is not None and url.partition(":")[0] == POSTGRESQL


def is_fresh(chosen: str | None) -> bool:
    """Whether a run on this --url gets a new store."""
    return chosen is None or is_postgresql(chosen)


def file_url(path: Path) -> str:
    return f"sqlite:///{quote(str(path))}"


def server_url(url: str) -> str:
    """The URL without the parameters of gesta's adapter."""
    parts = urlsplit(url)
    left = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OURS]
    return urlunsplit(parts._replace(query=urlencode(left)))


@asynccontextmanager
async def scratch_store(
    chosen: ChosenStore, folder: Path, purpose: str, runtime: Runtime
) -> AsyncIterator[ScratchStore]:
    """The chosen store. What was created for it is removed afterwards."""
    async with AsyncExitStack() as servers:
        store = await servers.enter_async_context(
            _durable_store(chosen.url, folder, purpose, runtime)
        )
        own = ""
        if REDIS in (chosen.queue_url, chosen.views_url):
            server = ValkeyServer(durable=True, runtime=runtime, below=folder)
            own = (await servers.enter_async_context(server)).url
        yield structs.replace(
            store,
            queue_url=own if chosen.queue_url == REDIS else chosen.queue_url,
            views_url=own if chosen.views_url == REDIS else chosen.views_url,
        )


@asynccontextmanager
async def _durable_store(
    chosen: str | None, folder: Path, purpose: str, runtime: Runtime
) -> AsyncIterator[ScratchStore]:
    if chosen is None:
        yield ScratchStore(file_url(folder / "gesta.db"), None)
    elif chosen == POSTGRESQL:
        async with PostgresServer(below=folder, runtime=runtime) as server:
            yield ScratchStore(server.url, fresh_master_key(runtime))
    elif is_postgresql(chosen):
        schema = f"gesta_{purpose}_{runtime.random_bytes(8).hex()}"
        url = with_schema(chosen, schema)
        # Created first, so that an unusable server is reported before anything else.
        await _execute(chosen, f"create schema {schema}")
        try:
            yield ScratchStore(url, fresh_master_key(runtime), is_here=False)
        finally:
            await _drop(chosen, schema)
    else:
        yield ScratchStore(chosen, None, is_ours=False)


def fresh_master_key(runtime: Runtime) -> str:
    return base64.b64encode(runtime.random_bytes(KEY_BYTES)).decode()


def with_schema(url: str, schema: str) -> str:
    """The URL of a server, with a schema for gesta's tables."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query)
    if any(name == "schema" for name, _ in query):
        raise BadSettings(
            "url: a scratch store creates its own schema and drops it afterwards; omit schema="
        )
    return urlunsplit(parts._replace(query=urlencode([*query, ("schema", schema)])))


async def _drop(url: str, schema: str) -> None:
    """Drop the schema. A failure is only reported: the result of the run matters more."""
    try:
        await _execute(url, f"drop schema if exists {schema} cascade")
    except StoreError as error:
        sys.stderr.write(f"note: the schema {schema} is still there; drop it yourself: {error}\n")


async def _execute(url: str, command: str) -> None:
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise BadSettings(
            "url: postgresql needs a package that is not installed; run: pip install"
            " 'gesta[postgresql]'"
        ) from None
    try:
        server = await asyncpg.connect(server_url(url), timeout=CONNECT_SECONDS)
        try:
            await server.execute(command, timeout=COMMAND_SECONDS)
        finally:
            await server.close(timeout=CONNECT_SECONDS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        reason = scrub(str(error)) or type(error).__name__
        raise StoreError(
            f"{scrub(url)}: {reason}; is the server running, and may this user create a schema?"
        ) from error
