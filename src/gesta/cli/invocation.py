"""One call of the command line: its global options, settings, engine and backend."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gesta.cli.log import start_log
from gesta.cli.output import tell
from gesta.domain.events import Actor
from gesta.domain.ids import TENANT
from gesta.errors import BadInput, BadSettings, StoreError

if TYPE_CHECKING:
    from gesta.admin.wording import Target
    from gesta.cli.backend import Backend
    from gesta.engine.engine import Engine
    from gesta.engine.process_roles import Work
    from gesta.http_api.app import Web
    from gesta.runtime.settings import Settings

By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who decided this, for the record. Default: your user name on this machine.",
    ),
]


def _global(name: str, metavar: str | None, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel="Global options")


@dataclass(frozen=True)
class Call:
    """The options of every command."""

    debug: Annotated[bool, _global("--debug", None, "Show the traceback of an error.")] = False


@dataclass(frozen=True)
class Invocation(Call):
    """The options of every command that uses a store. Defaults come from GESTA_* or gesta.toml."""

    url: Annotated[str | None, _global("--url", "URL", "The store, e.g. sqlite:///gesta.db.")] = (
        None
    )
    app: Annotated[
        str | None,
        _global("--app", "MODULE:NAME", "Load the flows of the Engine in your program."),
    ] = None
    tenant: Annotated[str | None, _global("--tenant", "NAME", "The tenant. Default: default.")] = (
        None
    )
    file: Annotated[
        str | None, _global("--file", "FILE", "Read settings from this file, not gesta.toml.")
    ] = None
    log_level: Annotated[
        str | None,
        _global("--log-level", "LEVEL", "debug, info, warning, error or critical."),
    ] = None
    log_format: Annotated[
        str | None,
        _global("--log-format", "FORMAT", "json, text, or auto: text on a terminal, else json."),
    ] = None
    server: Annotated[
        str | None,
        _global(
            "--server", "URL", "Send the command to a running server; its key is GESTA_API_KEY."
        ),
    ] = None

    @cached_property
    def settings(self) -> Settings:
        from gesta.cli.flows import settings_of_app
        from gesta.runtime.settings import load

        names = ("url", "app", "tenant", "log_level", "log_format", "server")
        given = {name: getattr(self, name) for name in names}
        loaded = load(given, file=self.file)
        return loaded if loaded.app is None else settings_of_app(loaded, self.file)

    @property
    def tenant_name(self) -> str:
        """The tenant to act for. Raises if no tenant can have this name."""
        name, source = self.settings.tenant, self.settings.sources["tenant"]
        if not TENANT.fullmatch(name):
            raise BadSettings(
                f"tenant from {source}: {name!r} is not a tenant name; write 1 to 63 of A-Z a-z 0-9"
                " . _ - that begin with a letter or digit"
            )
        return name

    @property
    def place(self) -> Target:
        """The options of this call that a suggested command must repeat."""
        from gesta.admin.wording import Target, options
        from gesta.runtime.redaction import scrub

        # A URL with a password is not repeated.
        url = self.url if self.url is not None and scrub(self.url) == self.url else None
        return Target(
            options(tenant=self.tenant),
            options(app=self.app),
            options(file=self.file, url=url, server=self.server),
        )

    def engine(self, *, work: Work | None = None) -> Engine:
        """An engine with the flows of this process; the caller starts it."""
        from gesta.cli.flows import components_of, flows_of, subscriptions_of
        from gesta.engine.engine import Engine

        engine = Engine(settings=self.settings, flows=flows_of(self.settings), work=work or False)
        for one in subscriptions_of(self.settings):
            engine.subscribe(one)
        for name, run in components_of(self.settings).items():
            engine.add_component(name, run)
        return engine

    @property
    def server_address(self) -> str | None:
        """The server that executes commands; None: this process opens the store.

        --url on the command line takes precedence over a server in the settings.
        """
        return (
            None if self.url is not None and self.server is None else self.settings.server or None
        )

    def refuse_server(self) -> None:
        """For commands that need the store itself. Using another store than the server's would be
        worse than an error.
        """
        if self.server_address is not None:
            where = self.settings.sources["server"]
            raise BadInput(
                f"this command opens the store itself, but a server is set (server from {where});"
                " unset it, or name the store with --url"
            )

    @asynccontextmanager
    async def backend(self, *, create: bool = False) -> AsyncIterator[Backend]:
        """Execute the command through the server that is set, else on the store.

        `create`: whether the command may create a store.
        """
        if self.server_address is not None:
            async with self._at_server(self.server_address) as backend:
                yield backend
            return
        from gesta.cli.backend import Backend, InProcess
        from gesta.client import Client

        engine = self.engine()
        web: Web | None = None
        async with AsyncExitStack() as stack:

            async def opened() -> Engine:
                if not engine.is_running:
                    await stack.enter_async_context(self.opened(engine, create=create))
                return engine

            async def api() -> Web:
                nonlocal web
                if web is None:
                    web = self._web(await opened())
                return web

            yield Backend(self, Client(line=InProcess(api)), engine=engine, open_store=opened)

    def _web(self, engine: Engine) -> Web:
        """The API of the engine. A user who may read the store has every scope."""
        from gesta.http_api.app import Web
        from gesta.tenants.api_keys import Grant

        grant = Grant(
            key_id="",
            tenant=self.tenant_name,
            scopes=frozenset({"admin"}),
            name=user_name(),
            is_test=False,
            expires_ms=None,
        )
        return Web(engine, grant=grant)

    @asynccontextmanager
    async def _at_server(self, server: str) -> AsyncIterator[Backend]:
        from gesta.cli.backend import Backend
        from gesta.client import Client

        if self.settings.api_key is None:
            raise BadSettings(
                "api_key: the server needs an API key; create one on the store with `gesta key"
                " create` and set GESTA_API_KEY"
            )
        async with Client(server, self.settings.api_key) as client:
            start_log(self.settings)
            tenant = (await client.whoami()).tenant
            if self.tenant not in (None, tenant):
                raise BadInput(
                    f"--tenant: the API key belongs to tenant {tenant}; use a key of {self.tenant}"
                )
            yield Backend(self, client, tenant=tenant)

    @asynccontextmanager
    async def opened(
        self, engine: Engine | None = None, *, create: bool = False, is_server: bool = False
    ) -> AsyncIterator[Engine]:
        """A running engine; other processes may use the store at the same time.

        `create`: whether the command may create a store.
        """
        if not is_server:
            self.refuse_server()
        if not create:
            refuse_missing_file(self.settings)
        async with engine or self.engine() as running:
            # The log begins here: notes of the start are printed in words.
            start_log(self.settings)
            for note in running.notes:
                tell(f"note: {note}")
            tell_of_odd_variables()
            yield running

    def actor(self, by: str | None = None) -> Actor:
        return Actor(by or user_name())


def user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def tell_of_odd_variables() -> None:
    """Warn of variables that look like misspelt settings."""
    from gesta.runtime.settings import odd_variables

    for odd in odd_variables():
        tell(f"note: {odd}")


def refuse_missing_file(settings: Settings) -> None:
    """A command that only reads must not create a store or a key.

    SQLite treats an empty file as a new database.
    """
    from gesta.stores.sqlite import emptied_evidence, file_of

    if not settings.url.startswith("sqlite:"):
        return
    path = file_of(settings.url)
    if emptied_evidence(path) is not None:
        # Opening the store says that it was emptied.
        return
    if not path.exists() or (path.is_file() and path.stat().st_size == 0):
        where = f"{path} (url from {settings.sources['url']})"
        error = "is empty" if path.exists() else "does not exist"
        raise StoreError(
            f"{where} {error}; `gesta serve` and `gesta submit` create it. Or name another with"
            " --url or GESTA_URL"
        )
