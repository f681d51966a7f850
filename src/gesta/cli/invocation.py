"""One call of the command line: its settings, its log, the engine it opens.

Every field is an option of every command.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

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

_PANEL = "Global options"

By = Annotated[
    str | None,
    typer.Option("--by", help="Who decides, for the record; without it, the user of this machine."),
]


@dataclass(frozen=True)
class Call:
    """What every command takes."""

    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_PANEL),
    ] = False


@dataclass(frozen=True)
class Invocation(Call):
    """What every command on a store takes. An option left out comes from GESTA_* or gesta.toml."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="The store, e.g. sqlite:///gesta.db.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:NAME",
            help="A program's Engine, for flows of one's own.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", metavar="NAME", help="Whose requests and config.", rich_help_panel=_PANEL
        ),
    ] = None
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Settings, instead of gesta.toml.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="debug, info, warning, error or critical.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="A running server to ask instead; its key is GESTA_API_KEY.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    @cached_property
    def settings(self) -> Settings:
        from gesta.cli.flows import settings_of_app
        from gesta.runtime.settings import load

        given = {
            "url": self.url,
            "app": self.app,
            "tenant": self.tenant,
            "log_level": self.log_level,
            "server": self.server,
        }
        loaded = load(given, file=self.file)
        return loaded if loaded.app is None else settings_of_app(loaded, self.file)

    @property
    def tenant_name(self) -> str:
        """The tenant to act for.

        Raises when no tenant can be called so: a listing would only come out empty.
        """
        name, source = self.settings.tenant, self.settings.sources["tenant"]
        if not TENANT.fullmatch(name):
            raise BadSettings(
                f"tenant from {source}: {name!r} is not 1 to 63 of A-Z a-z 0-9 . _ - with a letter"
                " or digit first"
            )
        return name

    @property
    def place(self) -> Target:
        """What a command that is advised has to repeat of this call."""
        from gesta.admin.wording import Target, options
        from gesta.runtime.redaction import scrub

        # A password is not shown, wherever it came from.
        url = self.url if self.url is not None and scrub(self.url) == self.url else None
        return Target(
            options(tenant=self.tenant),
            options(app=self.app),
            options(file=self.file, url=url, server=self.server),
        )

    def engine(self, *, work: Work | None = None) -> Engine:
        """An engine with the flows of this process, not started yet."""
        from gesta.cli.flows import flows_of, subscriptions_of
        from gesta.engine.engine import Engine

        engine = Engine(settings=self.settings, flows=flows_of(self.settings), work=work or False)
        for one in subscriptions_of(self.settings):
            engine.subscribe(one)
        return engine

    @property
    def server_address(self) -> str | None:
        """The server that commands ask; None: they work on the store.

        Whoever names a store on the command line means that one.
        """
        return (
            None if self.url is not None and self.server is None else self.settings.server or None
        )

    def refuse_server(self) -> None:
        """For what only the store can do: silently working on another store than the server's would
        be worse than an error.
        """
        if self.server_address is not None:
            where = self.settings.sources["server"]
            raise BadInput(
                f"this works on the store itself, and a server is named (server from {where});"
                " leave that out, or name the store: --url"
            )

    @asynccontextmanager
    async def backend(self, *, create: bool = False) -> AsyncIterator[Backend]:
        """Where the command is carried out: by the server that is named, else on the store.

        Only some commands may make a store.
        """
        if self.server_address is not None:
            async with self._at_server(self.server_address) as backend:
                yield backend
            return
        from gesta.cli.backend import Backend, InProcess
        from gesta.client import Client

        engine = self.engine()
        async with AsyncExitStack() as stack:

            async def opened() -> Engine:
                if not engine.is_running:
                    await stack.enter_async_context(self.opened(engine, create=create))
                return engine

            line = InProcess(self._web_of(opened))
            yield Backend(self, Client(line=line), engine=engine, open_store=opened)

    def _web_of(self, opened: Callable[[], Awaitable[Engine]]) -> Callable[[], Awaitable[Web]]:
        """The API of the engine, once it is open: whoever may read the store may do everything."""
        made: list[Web] = []

        async def web() -> Web:
            if not made:
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
                made.append(Web(await opened(), grant=grant))
            return made[0]

        return web

    @asynccontextmanager
    async def _at_server(self, server: str) -> AsyncIterator[Backend]:
        from gesta.cli.backend import Backend
        from gesta.client import Client

        if self.settings.api_key is None:
            raise BadSettings(
                "api_key: the server needs one; set GESTA_API_KEY. `gesta key create` on the store"
                " makes it"
            )
        async with Client(server, self.settings.api_key) as client:
            start_log(self.settings.log_level)
            tenant = (await client.whoami()).tenant
            if self.tenant not in (None, tenant):
                raise BadInput(
                    f"--tenant: the API key is of tenant {tenant}; one of another tenant is a key"
                    " of its own"
                )
            yield Backend(self, client, tenant=tenant)

    @asynccontextmanager
    async def opened(
        self, engine: Engine | None = None, *, create: bool = False, is_server: bool = False
    ) -> AsyncIterator[Engine]:
        """A running engine, beside whatever other process works on the store.

        Only some commands may make a store.
        """
        if not is_server:
            self.refuse_server()
        if not create:
            refuse_missing_file(self.settings)
        async with engine or self.engine() as running:
            # The log begins here: what the engine notes at its start is told in words instead.
            start_log(self.settings.log_level)
            for note in running.notes:
                tell(f"note: {note}")
            tell_of_odd_variables()
            yield running

    def actor(self, by: str | None = None) -> Actor:

        return Actor(by or user_name())


def user_name() -> str:
    """Who is at the keyboard, as the machine knows them."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def silence_log() -> None:
    """Nothing is logged until `start_log`, not even by Python's handler of last resort."""
    logging.getLogger("gesta").handlers[:] = [logging.NullHandler()]


def start_log(level: str) -> None:
    """JSON lines on stderr."""
    logger = logging.getLogger("gesta")
    logger.handlers[:] = [logging.StreamHandler()]
    logger.propagate = False
    logger.setLevel(level.upper())


def tell_of_odd_variables() -> None:
    """Whoever misspells a setting believes that it counts."""
    from gesta.runtime.settings import odd_variables

    for odd in odd_variables():
        tell(f"note: {odd}")


def refuse_missing_file(settings: Settings) -> None:
    """Whoever only looks makes nothing: no store, and no key for it.

    SQLite takes an empty file for a new database.
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
        fault = "is empty" if path.exists() else "does not exist"
        raise StoreError(
            f"{where} {fault}; `gesta serve` and `gesta submit` make it. Or name another: --url,"
            " GESTA_URL"
        )
