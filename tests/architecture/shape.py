"""Sizes, names and leftovers: what keeps every file readable in one go."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.layers import CONTRACT
from tests.architecture.source import Module, modules, programs

FOLDERS = ("src", "tests", "benchmarks", "examples")
COLUMNS_MAX = 100
ARGUMENTS_MAX = 8
#: A constructor with more than these takes them by name.
POSITIONAL_MAX = 3
FUNCTION_LINES_MAX = 70
#: Words that say nothing about what a module holds.
EMPTY_WORDS = frozenset(
    "manager managers service services helper helpers util utils common base".split()
)
SWITCHED_OFF = re.compile(r"#\s*fmt:\s*(off|skip)")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
SQL = re.compile(
    r"insert\s+(or\s+\w+\s+)?into\b|\bselect\b.*\bfrom\b|\bupdate\b.*\bset\b|\bdelete\s+from\b"
    r"|\b(create|alter|drop)\s+(table|index)\b",
    re.IGNORECASE | re.DOTALL,
)


def check_columns(root: Path) -> list[str]:
    """The formatter leaves strings and comments alone; this does not."""
    return [
        module.at(number, f"{len(line)} columns, at most {COLUMNS_MAX}")
        for folder in FOLDERS
        for module in modules(root, folder)
        for number, line in enumerate(module.text.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def check_formatter(root: Path) -> list[str]:
    """The formatter applies everywhere."""
    return [
        module.at(number, "the formatter is switched off")
        for folder in FOLDERS
        for module in modules(root, folder)
        for number, line in enumerate(module.text.splitlines(), 1)
        if SWITCHED_OFF.search(line)
    ]


def check_arguments(root: Path) -> list[str]:
    """At most eight arguments each; a constructor takes its collaborators by name."""
    found = []
    for module in programs(root):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += _argument_errors(module, node)
    return found


def _argument_errors(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    positional = [*node.args.posonlyargs, *node.args.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    count = len(positional) + len(node.args.kwonlyargs)
    if count > ARGUMENTS_MAX:
        return [module.at(node, f"{node.name} takes {count} arguments, at most {ARGUMENTS_MAX}")]
    if node.name == "__init__" and len(positional) > POSITIONAL_MAX:
        text = f"__init__ takes {len(positional)} arguments by position, at most {POSITIONAL_MAX}"
        return [module.at(node, text)]
    return []


def check_function_lengths(root: Path) -> list[str]:
    return [
        module.at(node, f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")
        for folder in FOLDERS
        for module in modules(root, folder)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def check_names(root: Path) -> list[str]:
    """A module is called after the thing it holds."""
    return [
        f"{module.shown}: {word!r} says nothing about what is inside"
        for module in programs(root)
        for word in re.split(r"[._]", module.name)
        if word in EMPTY_WORDS
    ]


def check_leftovers(root: Path) -> list[str]:
    return [
        module.at(number, f"{match[0]} in shipped code")
        for module in programs(root)
        for number, line in enumerate(module.text.splitlines(), 1)
        if (match := LEFTOVER.search(line))
    ]


def check_sql(root: Path) -> list[str]:
    """An adapter's SQL lives in .sql files. Docstrings are prose and may speak of it."""
    found: list[str] = []
    for module in modules(root, "src"):
        if not module.name.startswith("gesta.stores"):
            continue
        prose = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
        code = [node for node in ast.walk(module.tree) if id(node) not in prose]
        found += [
            module.at(node, "SQL belongs into a .sql file")
            for node in code
            if SQL.search(_text(node))
        ]
    return sorted(set(found))


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(
                value.value if isinstance(value, ast.Constant) else "…"  # type: ignore[misc]
                for value in values
            )
        case _:
            return ""


def check_flow_tests(root: Path) -> list[str]:
    """Every channel has its test, called after it."""
    flows = root / "src" / "gesta" / "flows"
    names = {path.stem for path in flows.glob("*.py")} | {
        path.parent.name for path in flows.glob("*/__init__.py")
    }
    return [
        f"src/gesta/flows/{name}: tests/flows/test_{name}.py is missing"
        for name in sorted(names - {"__init__"} - CONTRACT - {"attempt"})
        if not (root / "tests" / "flows" / f"test_{name}.py").exists()
    ]
