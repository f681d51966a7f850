"""Who may import whom: the rooms of the house in their order."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source import Module, home, imports, modules

#: The standard library the domain may use: values and algorithms, nothing that touches the world.
PURE = frozenset(
    """__future__ abc base64 binascii bisect collections copy dataclasses datetime decimal enum
    fractions functools hashlib heapq hmac itertools json math numbers operator re string struct
    textwrap types typing unicodedata uuid zoneinfo""".split()
)

#: From top to bottom. A room imports rooms of lower rows only, and never one of its own row. A
#: name with a dot is one module: what flows share is below tenants, what an executor is given
#: (`flows.attempt`) holds parts of tenants and is above them, and every other module of flows is a
#: channel (`flows.*`).
ROWS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("console", "demo"),
    ("testing",),
    ("http_api", "client"),
    ("admin", "sync"),
    ("engine",),
    ("sagas",),
    ("subscriptions", "maintenance", "payments", "jobs"),
    ("flows.*",),
    ("intake", "projector", "worker"),
    ("requests", "sandbox"),
    ("flows.attempt",),
    ("tenants",),
    ("security", "outbound"),
    ("flows", "stores"),
    ("ports",),
    ("api_types", "runtime"),
    ("errors",),
    ("domain",),
)
#: What flows share: the contract of a flow.
CONTRACT = frozenset(
    """channels deferrals external flow payload_codec personal_fields schemas validation""".split()
)
#: The client is for programs without an engine: it loads these and nothing else of gesta.
CLIENT_KNOWS = frozenset({"client", "api_types", "errors", "domain"})
_RANK = {room: number for number, row in enumerate(ROWS) for room in row}


def room_of(name: str) -> str | None:
    """`gesta.worker.pool` → `worker`; None for `gesta` itself, whose names are public."""
    parts = name.split(".")[1:]
    if not parts:
        return None
    if parts[0] != "flows" or len(parts) == 1:
        return parts[0]
    return (
        "flows.attempt" if parts[1] == "attempt" else "flows" if parts[1] in CONTRACT else "flows.*"
    )


def check_rooms(root: Path) -> list[str]:
    """Imports go down. What stands below `if TYPE_CHECKING:` is not imported.

    `from gesta import Engine` hides the room that it comes from, so only the command line does it.
    """
    known = {module.name for module in modules(root)}
    found = []
    for module in modules(root):
        own = room_of(module.name)
        if own is None:
            continue
        if own not in _RANK:
            found.append(f"{module.shown}: {own} is no room of the house")
            continue
        for name, node in _imports_at_run_time(module):
            if home(name, known) == "gesta" and own != "cli":
                found.append(module.at(node, f"{own}: import {name} from the module that has it"))
                continue
            other = room_of(home(name, known)) if name.startswith("gesta.") else None
            if other in (None, own) or _is_same_channel(module.name, name):
                continue
            if other not in _RANK or _RANK[other] <= _RANK[own]:
                found.append(module.at(node, f"{own} may not import {name}"))
    return found


def check_channels(root: Path) -> list[str]:
    """A channel knows no other channel: a folder or a file below flows is one."""
    known = {module.name for module in modules(root)}
    return [
        module.at(node, f"a channel may not know another one: {name}")
        for module in modules(root)
        if room_of(module.name) == "flows.*"
        for name, node in imports(module)
        if room_of(home(name, known)) == "flows.*" and not _is_same_channel(module.name, name)
    ]


def check_stores(root: Path) -> list[str]:
    """A store knows no other store: a folder below stores is one, the files beside are shared."""
    known = {module.name for module in modules(root)}
    folders = {
        module.name
        for module in modules(root)
        if module.is_package and module.name.startswith("gesta.stores.")
    }
    found = []
    for module in modules(root):
        own = ".".join(module.name.split(".")[:3])
        for name, node in imports(module):
            other = ".".join(home(name, known).split(".")[:3])
            if own.startswith("gesta.stores") and other in folders and other != own:
                found.append(module.at(node, f"a store may not know another store: {name}"))
    return found


def check_client(root: Path) -> list[str]:
    """Importing gesta.client loads no engine, worker or store."""
    known = {module.name for module in modules(root)}
    return [
        module.at(node, f"{room_of(module.name)} may not import {name}")
        for module in modules(root)
        if room_of(module.name) in ("client", "api_types")
        for name, node in _imports_at_run_time(module)
        if name.startswith("gesta.") and room_of(home(name, known)) not in CLIENT_KNOWS
    ]


def check_domain(root: Path) -> list[str]:
    """The domain imports itself, msgspec and pure parts of the standard library."""
    found = []
    for module in modules(root):
        if room_of(module.name) != "domain":
            continue
        for name, node in imports(module):
            top = name.split(".")[0]
            if not (top in PURE or top == "msgspec" or f"{name}.".startswith("gesta.domain.")):
                found.append(module.at(node, f"the domain is pure and may not import {name}"))
    return found


def _is_same_channel(one: str, other: str) -> bool:
    return room_of(one) == "flows.*" and one.split(".")[:3] == other.split(".")[:3]


def _imports_at_run_time(module: Module) -> list[tuple[str, ast.AST]]:
    typing_only = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    return [(name, node) for name, node in imports(module) if id(node) not in typing_only]


#: The value `Lifecycle` and the choice of one by a flow's name are for everyone, their rules not.
LIFECYCLES = (
    "gesta.domain.notification",
    "gesta.domain.operation",
    "gesta.domain.saga",
    "gesta.domain.task",
)


def check_lifecycles(root: Path) -> list[str]:
    """Only domain, flows and sagas know a lifecycle by name; the pipeline uses `Lifecycle`."""
    return [
        module.at(node, f"{room_of(module.name)} may not know a lifecycle: {name}")
        for module in modules(root)
        if (room_of(module.name) or "").partition(".")[0] not in ("domain", "flows", "sagas")
        for name, node in imports(module)
        if f"{name}.".startswith(tuple(f"{one}." for one in LIFECYCLES))
    ]
