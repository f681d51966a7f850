"""Which test shows which requirement: reads comments of tests, writes tests/trace/requirements.md.

A test names what it shows beside the assertion: `# R1-28` or `# R1-31, S1-7: a late failure changes
nothing`, at most three ids each.
`make requirements-doc` writes the page, `make missing` prints the lines that no test names yet.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent
PAGE = LISTS / "requirements.md"

ID = re.compile(r"\b(?:[RS]\d+|[KXD])-\d+\b")
LINE = re.compile(r"((?:[RS]\d+|[KXD])-\d+) (.+)")
IDS_PER_COMMENT_MAX = 3
#: The tests, and the contract suites that ship in the wheel.
FOLDERS = ("tests", "src/gesta/testing/contracts")


@dataclass(frozen=True)
class Named:
    """A comment that names ids, and the test it stands in; None when it stands in none."""

    place: str
    line: int
    test: str | None
    ids: tuple[str, ...]


def lines(name: str) -> dict[str, str]:
    """Id → text, in the order of the file."""
    text = (LISTS / f"{name}.txt").read_text(encoding="utf-8")
    return {match[1]: match[2] for line in text.splitlines() if (match := LINE.fullmatch(line))}


def titles() -> dict[str, str]:
    """R0 → what the document is about."""
    text = (LISTS / "requirements.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^## (R\d+) (.+)$", text, re.MULTILINE))


def scan(root: Path) -> list[Named]:
    """Every comment that names an id, in the order of the files."""
    return [
        named
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        for named in _scan_file(root, path)
    ]


def _scan_file(root: Path, path: Path) -> Iterator[Named]:
    text = path.read_text(encoding="utf-8")
    place = path.relative_to(root).as_posix()
    if not ID.search(text):
        return
    tests = list(_tests(ast.parse(text), is_test_file=path.name.startswith("test_")))
    source = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (ids := tuple(ID.findall(token.string))):
            line = _below_comments(source, token.start[0])
            inside = [(first, name) for first, last, name in tests if first <= line <= last]
            yield Named(
                place, token.start[0], f"{place}::{max(inside)[1]}" if inside else None, ids
            )


def _below_comments(source: list[str], line: int) -> int:
    """A comment on a line of its own belongs to the first line of code below it."""
    while line < len(source) and source[line - 1].lstrip().startswith("#"):
        line += 1
    return line


def _tests(
    tree: ast.AST, *, is_test_file: bool, prefix: str = ""
) -> Iterator[tuple[int, int, str]]:
    """First line, last line and name.

    In a test file every function counts: a state machine's rules are not called test_*.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, is_test_file=is_test_file, prefix=f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            is_test_file or node.name.startswith("test_")
        ):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield first, node.end_lineno or first, prefix + node.name


def problems(root: Path) -> list[str]:
    """Comments that prove nothing: unknown ids, too many at once, or outside of a test."""
    known = lines("requirements").keys() | lines("hazards").keys()
    found = []
    for named in scan(root):
        where = f"{named.place}:{named.line}"
        found += [f"{where}: {name} does not exist" for name in named.ids if name not in known]
        if len(named.ids) > IDS_PER_COMMENT_MAX:
            found.append(
                f"{where}: names {len(named.ids)} ids, at most {IDS_PER_COMMENT_MAX}: one assertion"
                " does not show them all"
            )
        if named.test is None:
            found.append(f"{where}: names {', '.join(named.ids)} outside of a test")
    return found


def evidence(root: Path) -> dict[str, list[str]]:
    """Id → the tests that name it."""
    shown: dict[str, list[str]] = {}
    for named in scan(root):
        for name in named.ids:
            tests = shown.setdefault(name, [])
            if named.test is not None and named.test not in tests:
                tests.append(named.test)
    return shown


def page(root: Path) -> str:
    """The text of tests/trace/requirements.md."""
    requirements, hazards, shown = lines("requirements"), lines("hazards"), evidence(root)
    total = Counter(name.split("-")[0] for name in requirements)
    done = Counter(name.split("-")[0] for name in requirements if shown.get(name))
    out = [
        "# Requirements, and the tests that show them",
        "",
        (
            "Made from the comments of the tests by `make requirements-doc`; do not edit. `(AC)`"
            " marks a document's own acceptance list; `!S0-1`"
        ),
        (
            "means that the wording is unsafe as it stands and correction S0-1 applies (all of"
            " them: `tests/trace/hazards.txt`)."
        ),
        "",
        "| | document | lines | shown |",
        "|---|---|---:|---:|",
        *(
            f"| {group} | {title} | {total[group]} | {done[group]} |"
            for group, title in titles().items()
        ),
    ]
    for group, title in titles().items():
        out += ["", f"## {group} {title}", ""]
        for name, text in requirements.items():
            if name.startswith(f"{group}-"):
                out += _entry(name, text, shown.get(name, []))
    named = {name: text for name, text in hazards.items() if shown.get(name)}
    out += ["", "## Corrections, crash points and provider facts that tests name", ""]
    for name, text in named.items():
        out += _entry(name, text, shown[name])
    if not named:
        out.append("None yet.")
    return "\n".join(out) + "\n"


def _entry(name: str, text: str, tests: list[str]) -> list[str]:
    return [f"- **{name}** {text}", *(f"  - `{test}`" for test in tests)]


def missing(root: Path) -> dict[str, str]:
    """The requirement lines that no test names."""
    shown = evidence(root)
    return {name: text for name, text in lines("requirements").items() if not shown.get(name)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write tests/trace/requirements.md")
    parser.add_argument(
        "--missing", action="store_true", help="print the lines that no test names yet"
    )
    options = parser.parse_args()
    found = problems(ROOT)
    for problem in found:
        print(problem, file=sys.stderr)
    if options.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(ROOT), encoding="utf-8")
    if options.missing:
        left = missing(ROOT)
        for name, text in left.items():
            print(f"{name:6} {text if len(text) <= 120 else text[:119] + '…'}")
        print(
            f"{len(left)} of {len(lines('requirements'))} requirement lines are named by no test"
            " yet."
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
