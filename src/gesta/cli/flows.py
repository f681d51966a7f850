"""Which flows a process has: those of the program named by --app, else the built-in and installed
ones, set up by gesta.toml.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

from gesta import sync
from gesta.engine.engine import Engine
from gesta.errors import BadFlow, BadSettings, GestaError, MissingExtra
from gesta.flows.channels import CHANNELS, flow_name, how_to_add, module_of
from gesta.flows.external import from_table
from gesta.flows.flow import Flow
from gesta.runtime.settings import Settings, keyword_arguments
from gesta.subscriptions.handlers import Subscription

#: `flow(**settings) -> Flow`, what the module of a channel offers.
Factory = Callable[..., Flow]
_GROUP = "gesta.flows"
#: The section of gesta.toml that declares flows executed by external workers.
EXTERNAL = "external"


def flows_of(settings: Settings) -> list[Flow]:
    """The flows that this process declares."""
    if settings.app is not None:
        return list(load_app(settings.app, settings.sources["app"]).flows.values())
    factories = _factories()
    for name in settings.flows:
        if name not in factories and name != EXTERNAL:
            where = settings.sources["flows"]
            raise BadSettings(
                f"[flows.{name}] in {where}: there is no such flow; this gesta has:"
                f" {', '.join(factories)}"
            )
    made = [_made(name, factory, settings) for name, factory in factories.items()]
    return [*(one for one in made if isinstance(one, Flow)), *_external(settings)]


def _external(settings: Settings) -> list[Flow]:
    """The flows that external workers execute: [flows.external."warehouse.pick"]."""
    where, flows = settings.sources.get("flows", "the settings"), []
    for name, table in settings.flows.get(EXTERNAL, {}).items():
        if not isinstance(table, dict):
            raise BadSettings(
                f"[flows.external] in {where}: write one table per flow, for instance"
                ' [flows.external."warehouse.pick"]'
            )
        try:
            flows.append(from_table(name, table))
        except BadFlow as error:
            raise BadSettings(f'[flows.external."{name}"] in {where}: {error}') from error
    return flows


def left_out(settings: Settings) -> list[MissingExtra]:
    """The channels that this process does without, because nothing that they need is installed and
    they have no config.
    """
    if settings.app is not None:
        return []
    made = [_made(name, factory, settings) for name, factory in _factories().items()]
    return [one for one in made if isinstance(one, MissingExtra)]


def how_to_get(name: str, settings: Settings) -> str:
    """How to add a flow, or a kind of config, that this process does not have."""
    channels = [
        flow_name(one)
        for one, kinds in CHANNELS.items()
        if name == flow_name(one)
        or any(kind == name or kind.startswith(f"{name}.") for kind in kinds)
    ]
    if settings.app is None and (
        missing := [str(one) for one in left_out(settings) if one.name in channels]
    ):
        return "; or ".join(missing)
    if channels:
        return how_to_add(name).removeprefix("; ")
    return "name its program with --app MODULE:NAME"


def subscriptions_of(settings: Settings) -> list[Subscription]:
    """The handlers that the program of this process has."""
    return (
        []
        if settings.app is None
        else list(load_app(settings.app, settings.sources["app"]).subscriptions.values())
    )


def components_of(settings: Settings) -> dict[str, Callable[[Engine], Awaitable[None]]]:
    """The components that the program of this process runs beside the engine."""
    if settings.app is None:
        return {}
    return load_app(settings.app, settings.sources["app"]).components


def settings_of_app(asked: Settings, file: str | None) -> Settings:
    """A program's own settings, unless the command line overrides them."""
    assert asked.app is not None
    program = load_app(asked.app, asked.sources["app"]).settings
    # A program with an engine never calls a server; only commands do.
    said = {name for name, source in asked.sources.items() if source in ("argument", file)} | {
        "app",
        "server",
        "api_key",
    }
    sources = {
        name: asked.sources[name] if name in said else asked.app if source == "argument" else source
        for name, source in (program.sources or dict.fromkeys(asked.sources, "argument")).items()
    }
    return replace(program, **{name: getattr(asked, name) for name in said}, sources=sources)


def load_app(app: str, source: str) -> Engine:
    """The Engine that `module:name` leads to; of a `gesta.sync.Engine`, the one that it runs."""
    module_name, _, name = app.partition(":")
    where = f"app from {source}"
    if not module_name or not name:
        raise BadSettings(f"{where}: {app!r} must be MODULE:NAME, for instance shop.jobs:engine")
    if str(Path.cwd()) not in sys.path:
        # The console script starts elsewhere; a program in this folder must be found as `python -m`
        # finds it.
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except GestaError:
        raise
    except Exception as error:
        raise BadSettings(
            f"{where}: {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, name, None)
    if isinstance(found, sync.Engine):
        return found.async_engine
    if not isinstance(found, Engine):
        kinds = (Engine, sync.Engine)
        engines = [key for key, value in vars(module).items() if isinstance(value, kinds)]
        raise BadSettings(
            f"{where}: {module_name} has no Engine called {name!r}; it has:"
            f" {', '.join(engines) or 'none'}"
        )
    return found


def _factories() -> dict[str, Factory]:
    """Short name → the function that makes the flow: from the modules of gesta.flows, and from
    entry points of other packages.
    """
    factories: dict[str, Factory] = {
        name: import_module(module_of(name)).flow for name in sorted(CHANNELS)
    }
    return factories | {entry.name: entry.load() for entry in entry_points(group=_GROUP)}


def _made(name: str, factory: Factory, settings: Settings) -> Flow | MissingExtra:
    table = settings.flows.get(name, {})
    hints = get_type_hints(factory)
    types = {parameter: hints.get(parameter, Any) for parameter in signature(factory).parameters}
    try:
        arguments = keyword_arguments(table, types)
    except ValueError as error:
        raise BadSettings(f"[flows.{name}] in {settings.sources['flows']}: {error}") from None
    try:
        return factory(**arguments)
    except MissingExtra as missing:
        if name in settings.flows:
            # This channel is configured.
            raise
        return missing
