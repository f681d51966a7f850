"""Python sources as trees.

Every check takes the root of a checkout, so that a test can feed it a small one with a planted
error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Module:
    path: Path
    #: Relative to the root, with slashes: what a message shows and an exception names.
    shown: str
    #: Dotted: `gesta.flows.webhook`; a package is called after its folder.
    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        tree: ast.Module = parse(self.text, str(self.path))
        return tree

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def at(self, node: ast.AST | int, message: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.shown}:{line}: {message}"


def modules(root: Path, folder: str = "src") -> list[Module]:
    """Every Python file below a folder of the checkout."""
    base = root / folder
    found = []
    for path in sorted(base.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        if "node_modules" in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, path.relative_to(root).as_posix(), name, text))
    return found


def programs(root: Path) -> list[Module]:
    """The package and the benchmarks beside it, which keep the same rules."""
    return [*modules(root), *modules(root, "benchmarks")]


#: Every check reads the same files.
parse = lru_cache(maxsize=2_000)(ast.parse)


def imports(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Absolute dotted names of everything imported, wherever the import stands.

    `from a import b` gives `a.b`.
    """
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            yield from (
                (source if alias.name == "*" else f"{source}.{alias.name}", node)
                for alias in node.names
            )


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    kept = package[: len(package) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def home(name: str, known: set[str]) -> str:
    """The module that an imported name comes from: `gesta.flows.flow.Flow` → `gesta.flows.flow`."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def aliases(module: Module) -> dict[str, str]:
    """What the names of a file stand for: `from asyncio import sleep as rest` gives {"rest":
    "asyncio.sleep"}.
    """
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds `a`, `import a.b as c` binds `c` to all of it.
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{_absolute(module, node)}.{alias.name}"
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """`dt.datetime.now` with `import datetime as dt` → `datetime.datetime.now`.

    A call in the chain ends in `()`.
    """
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=attribute):
            return f"{dotted(value, names)}.{attribute}"
        case ast.Call(func=function):
            return f"{dotted(function, names)}()"
        case _:
            return "?"


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a small checkout: paths below the root and their texts."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
