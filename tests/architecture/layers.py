"""Who may import whom."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.source import Module, home, imports, modules

#: The standard library the domain may use: values and algorithms, nothing that touches the world.
PURE = frozenset(
    """__future__ abc base64 binascii bisect collections copy dataclasses datetime decimal enum
    fractions functools hashlib heapq hmac itertools json math numbers operator re string struct
    textwrap types typing unicodedata uuid zoneinfo""".split()
)
PORTS = frozenset(
    {
        "buckets",
        "commits",
        "event_store",
        "fences",
        "job_queue",
        "offer",
        "outbox",
        "vault",
        "views",
    }
)
#: What an adapter may use beside ports and domain: errors to raise, the runtime to ask, migrations
#: to apply, the contract to meet, a server to
#: meet it on.
ADAPTER_SUPPORT = frozenset({"contracts", "errors", "migrations", "runtime", "trial_server"})

#: Parts that use channels as a program does.
PROGRAMS = ("gesta.bench", "gesta.demo")
#: Stations that know a channel all the same, and why. It is the webhook each time: by it a tenant
#: is told what becomes of its requests.
KNOWN_CHANNELS: dict[tuple[str, str], str] = {
    (
        "src/gesta/engine/pipeline.py",
        "gesta.flows.webhook",
    ): "builds what tells tenants, where the program declares the webhook flow",
    (
        "src/gesta/subscriptions/status_webhooks.py",
        "gesta.flows.webhook",
    ): "submits what a tenant is told as messages of that flow",
    (
        "src/gesta/admin/admin.py",
        "gesta.flows.webhook",
    ): "lists who is told, and refuses a subscription by which nobody would be",
    (
        "src/gesta/admin/doctor/collect.py",
        "gesta.flows.webhook",
    ): "the doctor says whose subscription tells nobody",
    (
        "src/gesta/http_api/endpoints.py",
        "gesta.flows.webhook",
    ): "sends a test message to an endpoint, which is a route of its own",
}


def check_domain(root: Path) -> list[str]:
    """The domain imports itself, msgspec and pure parts of the standard library."""
    found = []
    for module in _below(root, "gesta.domain"):
        for name, node in imports(module):
            if not (
                _is_in(name, "gesta.domain")
                or _is_in(name, "msgspec")
                or name.split(".")[0] in PURE
            ):
                found.append(module.at(node, f"the domain is pure and may not import {name}"))
    return found


def check_flows(root: Path) -> list[str]:
    """A flow imports no adapter and no other flow; flow.py is what flows share, a folder is one
    flow.
    """
    known = {module.name for module in modules(root)}
    found = []
    for module in _below(root, "gesta.flows"):
        own = ".".join(module.name.split(".")[:3])
        for name, node in imports(module):
            target = home(name, known) or name
            if _is_in(name, "gesta.stores"):
                found.append(module.at(node, f"a flow may not know an adapter: {name}"))
            elif (
                target.startswith("gesta.flows.")
                and not _is_in(target, own)
                and not _is_in(target, "gesta.flows.flow")
            ):
                found.append(module.at(node, f"a flow may not know another flow: {name}"))
    return found


def check_stations(root: Path) -> list[str]:
    """Nothing beside the channels themselves, and programs, knows a channel; the exceptions are
    named, and each is needed.
    """
    known = {module.name for module in modules(root)}
    shared = {"gesta.flows.flow", "gesta.flows.external"}
    channels = {
        name for name in known if name.startswith("gesta.flows.") and name.count(".") == 2
    } - shared
    used: set[tuple[str, str]] = set()
    found = []
    for module in _below(root, "gesta"):
        if any(_is_in(module.name, one) for one in ("gesta.flows", *PROGRAMS)):
            continue
        for name, node in imports(module):
            for channel in channels:
                if _is_in(name, channel):
                    used.add((module.shown, channel))
                    if (module.shown, channel) not in KNOWN_CHANNELS:
                        found.append(module.at(node, f"a station may not know a channel: {name}"))
    present = {module.shown for module in modules(root)}
    return found + [
        f"{place} no longer needs {channel}: remove the exception"
        for place, channel in KNOWN_CHANNELS
        if place in present and (place, channel) not in used
    ]


def check_adapters(root: Path) -> list[str]:
    """An adapter imports ports, domain, its own folder and the files beside the folders; of gesta
    nothing else, least of all another adapter.
    """
    known = {module.name for module in modules(root)}
    shared = {"gesta.stores", *(module.name for module in modules(root) if _is_shared(module))}
    allowed = {"gesta.domain", *(f"gesta.{name}" for name in PORTS | ADAPTER_SUPPORT)}
    found = []
    for module in _below(root, "gesta.stores"):
        parts = module.name.split(".")
        own = ".".join(parts[:3])
        for name, node in imports(module):
            if not _is_in(name, "gesta") or any(_is_in(name, prefix) for prefix in allowed):
                continue
            if home(name, known) in shared or (len(parts) > 2 and _is_in(name, own)):
                continue
            found.append(
                module.at(node, f"an adapter knows ports, domain and its own folder, not {name}")
            )
    return found


def _is_shared(module: Module) -> bool:
    """A file right below gesta.stores, not a store."""
    return (
        module.name.startswith("gesta.stores.")
        and module.name.count(".") == 2
        and not module.is_package
    )


def check_contracts(root: Path) -> list[str]:
    """A contract holds for every adapter, so it knows none."""
    return [
        module.at(node, f"a contract may not know an adapter: {name}")
        for module in _below(root, "gesta.testing.contracts")
        for name, node in imports(module)
        if _is_in(name, "gesta.stores")
    ]


def _below(root: Path, package: str) -> list[Module]:
    return [module for module in modules(root) if _is_in(module.name, package)]


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")
