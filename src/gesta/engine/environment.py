"""The environment of an engine: stores, clock, network, master key.

Tests pass fakes here instead of patching.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gesta.errors import BadSettings, Fenced, LostMasterKey, UnreadableMasterKey
from gesta.outbound.http import PrivateAddressGuard, Transport
from gesta.outbound.http.aiohttp_transport import AioHttpTransport
from gesta.outbound.smtp import MailTransport, NoMail
from gesta.outbound.smtp.smtp_transport import SmtpTransport
from gesta.ports.boundary_queue import BoundaryQueue
from gesta.ports.stores import Stores
from gesta.runtime.clock import Runtime, SystemRuntime
from gesta.runtime.redaction import scrub
from gesta.runtime.settings import Settings, resolve_reference
from gesta.security.envelope_encryption import IDENTITY, KEY_BYTES, MasterKey
from gesta.stores import open_boundary, open_events, open_queue, open_stores, open_views
from gesta.tenants.templates.child_renderer import ChildRenderer
from gesta.tenants.templates.renderer import InlineRenderer, Renderer

if TYPE_CHECKING:
    from gesta.engine.pipeline import Pipeline


@dataclass(frozen=True)
class Environment:
    """Everything that an engine uses and does not implement itself."""

    runtime: Runtime
    stores: Stores
    transport: Transport
    master: MasterKey
    #: The value behind `env:NAME` in a flow's settings.
    reference: Callable[[str], str] = resolve_reference
    #: Moves the clock while a caller waits for an outcome, where the clock does not move by itself
    #: (tests).
    pass_time: Callable[[float], Coroutine[Any, Any, None]] | None = None
    #: How long attempts may run when the engine stops, before they are cancelled and recorded as
    #: Unknown. With what follows (pool.LAST_SECONDS, pipeline.END_SECONDS) it stays below the 30 s
    #: that supervisors allow.
    drain_seconds: float = 22.0
    #: Called with the pipeline once it is built; the test harness uses it.
    built: Callable[[Pipeline], None] | None = None
    #: Shown to the person who starts the process, e.g. that a key file was created.
    notes: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    renderer: Renderer = field(default_factory=InlineRenderer)
    mail: MailTransport = field(default_factory=NoMail)
    #: Where inbound events pass through; None: they do not leave the store.
    boundary: BoundaryQueue | None = None
    #: Which addresses may be called; None: the network is not real.
    guard: PrivateAddressGuard | None = None


Wire = Callable[[Settings], Awaitable[Environment]]


async def wire_really(settings: Settings) -> Environment:
    """The real world: the store of the URL, the system's clock, the network behind the
    private-address guard.
    """
    runtime = SystemRuntime()
    stores = await open_ports(settings, runtime)
    boundary = None
    try:
        if settings.inbound_queue_url is not None:
            with _naming("inbound_queue_url"):
                boundary = await open_boundary(settings.inbound_queue_url, runtime)
        master, notes = await master_key(settings, stores, runtime)
        guard = _guard(settings)
        transport, mail = AioHttpTransport(guard), SmtpTransport(guard, runtime)
    except BaseException:
        if boundary is not None:
            await boundary.close()
        await stores.close()
        raise
    renderer = ChildRenderer(runtime)
    return Environment(
        runtime,
        stores,
        transport,
        master,
        settings=settings,
        notes=notes,
        renderer=renderer,
        mail=mail,
        boundary=boundary,
        guard=guard,
    )


async def open_ports(settings: Settings, runtime: Runtime) -> Stores:
    """The store of the URL; events, views, queue and vault from other databases where the settings
    name them. What joins two databases is imported with the setting: most engines have one.
    """
    _refuse_short_lived_vault(settings)
    stores = await open_stores(settings.url, runtime)
    try:
        if settings.events_url not in (None, settings.url):
            from gesta.stores.separate_events import with_separate_events

            with _naming("events_url"):
                await _refuse_own_events(stores, settings.events_url)
                events = await open_events(settings.events_url, runtime)
                stores = with_separate_events(stores, events, runtime)
        if settings.views_url not in (None, settings.url):
            from gesta.stores.separate_views import with_separate_views

            with _naming("views_url"):
                views = await open_views(settings.views_url, runtime)
                stores = with_separate_views(stores, views)
        if settings.queue_url not in (None, settings.url):
            from gesta.stores.separate_queue import with_separate_queue

            with _naming("queue_url"):
                queue = await open_queue(settings.queue_url, runtime)
                stores = with_separate_queue(stores, queue, runtime)
        if settings.vault_url not in (None, settings.url):
            from gesta.stores.separate_vault import with_separate_vault

            with _naming("vault_url"):
                vault = await open_stores(settings.vault_url, runtime)
                stores = with_separate_vault(stores, vault)
    except BaseException:
        await stores.close()
        raise
    return stores


def _refuse_short_lived_vault(settings: Settings) -> None:
    """The digests of callers' keys need a secret of the vault. With another one, a key that was
    used before would have a second effect.
    """
    places = settings.databases
    if places["vault"] == "memory:" != places["events"]:
        raise BadSettings(
            f"vault_url: a vault in memory ends with the process, but the events in"
            f" {scrub(places['events'])} stay; name a persistent database"
        )


async def _refuse_own_events(stores: Stores, events_url: str) -> None:
    """A store with events in its own log would no longer see them."""
    from gesta.stores.separate_events import REMOVED

    first = await stores.events.follow(0, 1)
    if first and first[0].type != REMOVED:
        raise BadSettings(
            f"{stores.name} already contains events, which would be missing in"
            f" {scrub(events_url)}. Copy it into a new store: gesta copy --to URL --to-set"
            f" events_url={scrub(events_url)}"
        )


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    """Let an error name the setting that it is about."""
    try:
        yield
    except BadSettings as error:
        raise BadSettings(f"{setting}: {error}") from error


async def refuse_fenced(stores: Stores, *, works: bool) -> None:
    """Raise Fenced if this process may not work on the store. A store that was copied away can
    still be read; one that is being filled cannot.
    """
    for fence in await stores.fences.standing():
        if fence.kind == "filling" or (works and fence.tenant is None):
            raise Fenced(stores.name, fence.kind, other=fence.other, tenant=fence.tenant)


def _guard(settings: Settings) -> PrivateAddressGuard:
    try:
        return PrivateAddressGuard(allow=settings.allow_private)
    except ValueError as error:
        source = settings.sources.get("allow_private", "the settings")
        raise BadSettings(
            f"allow_private in {source}: {error}; write networks like 10.1.0.0/16"
        ) from error


async def master_key(
    settings: Settings, stores: Stores, runtime: Runtime
) -> tuple[MasterKey, tuple[str, ...]]:
    """The key from the settings, or the key file beside the store, made with mode 0600 when there
    is none.
    """
    if settings.master_key is not None:
        return (
            await _key(
                settings.master_key, settings.sources.get("master_key", "the settings"), stores
            ),
            (),
        )
    if settings.databases["vault"] == "memory:":
        # The secrets end with the process, so their key does, too.
        return MasterKey(_fresh_key(runtime), "memory"), ()
    if not stores.folder:
        raise BadSettings(
            "master_key: this store has no place for a key file; set GESTA_MASTER_KEY to 32 bytes"
            " in base64"
        )
    path = key_file(stores)
    assert path is not None
    if path.exists():
        return await _key(_found(path), str(path), stores), ()
    if await stores.vault.get([IDENTITY]) and not path.exists():
        # A new key could not decrypt what is stored.
        raise LostMasterKey(stores.name, str(path))
    fresh = _fresh_key(runtime)
    if not _write_once(path, fresh + "\n", runtime):
        # Another process created it first.
        return await _key(_found(path), str(path), stores), ()
    note = (
        f"created a master key in {path} (mode 0600); back it up separately from the store: without"
        " it stored secrets cannot be read"
    )
    return MasterKey(fresh, str(path)), (note,)


def _fresh_key(runtime: Runtime) -> str:
    return base64.b64encode(runtime.random_bytes(KEY_BYTES)).decode()


def key_file(stores: Stores) -> Path | None:
    """The path of a store's master key, unless the settings contain the key; None if the store has
    no place for a key file.
    """
    return Path(stores.name).with_suffix(".key") if stores.folder else None


def _write_once(path: Path, text: str, runtime: Runtime) -> bool:
    """Create the file whole and synced. False: another process created it first.

    A crash leaves no partial file.
    """
    draft = path.with_name(f"{path.name}.{runtime.random_bytes(8).hex()}")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where the name exists, which a rename does not.
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync_name(path)
    return True


def _found(path: Path) -> str:
    # Another process may have created it just now: nothing that it encrypts may outlive its name.
    _sync_name(path)
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UnreadableMasterKey(str(path), error.strerror or str(error)) from error


async def _key(text: str, where: str, stores: Stores) -> MasterKey:
    try:
        return MasterKey(text, where)
    except BadSettings:
        if not await stores.vault.get([IDENTITY]):
            raise
        # A new key would make everything that is encrypted unreadable.
        raise BadSettings(
            f"master key from {where}: {KEY_BYTES} bytes in base64 are needed; the file is damaged."
            f" {stores.name} has encrypted secrets that a new key cannot decrypt: restore {where}"
            " from a backup"
        ) from None


def _sync_name(path: Path) -> None:
    """The file name must survive a power loss, too: data that the key encrypts may already be on
    disk.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Wiring:
    """How engines of this process are wired; tests replace `wire` for their duration."""

    wire: Wire = staticmethod(wire_really)
