"""The SQL of the stores: every named statement is used, every name in use exists, and each
statement says above it what it does, takes and returns.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gesta
from gesta.stores import statements
from gesta.stores.statements import statements_of

STORES = ("sqlite", "postgresql")
SOURCE = Path(gesta.__file__).parent
#: How a statement is run by name: the function, and where among its arguments the name stands.
CALLS = {
    "sql": 0,
    "_sql": 0,
    "ask": 0,
    "run": 0,
    "has_row": 0,
    "run_outside": 0,
    "_sized": 0,
    "run_many": 1,
    "ask_many": 1,
}


def _pattern(node: ast.expr) -> list[re.Pattern[str]]:
    """What a name in use may be; an f-string stands for every name that fits."""
    match node:
        case ast.Constant(value=str(name)):
            return [re.compile(re.escape(name))]
        case ast.JoinedStr(values=parts):
            texts = [
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+"
                for part in parts
            ]
            return [re.compile("".join(texts))]
        case ast.IfExp(body=one, orelse=other):
            return _pattern(one) + _pattern(other)
        case _:
            return []


def _in_use(store: str) -> list[re.Pattern[str]]:
    found: list[re.Pattern[str]] = []
    shared = SOURCE / "stores" / "sql_queries.py"
    for path in [shared, *sorted((SOURCE / "stores" / store).glob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            place = CALLS.get(name)
            if place is not None and len(node.args) > place:
                found += _pattern(node.args[place])
    return found


@pytest.mark.parametrize("store", STORES)
def test_every_statement_that_is_used_exists(store):
    known = statements_of(f"gesta.stores.{store}")
    used = _in_use(store)
    assert len(used) > 50
    assert [pattern.pattern for pattern in used if not any(map(pattern.fullmatch, known))] == []


@pytest.mark.parametrize("store", STORES)
def test_every_statement_is_used(store):
    used = _in_use(store)
    if store == "postgresql":
        # The harness of the contract suites empties the schema of an earlier test.
        used.append(re.compile("empty_schema"))
    known = statements_of(f"gesta.stores.{store}")
    assert [name for name in known if not any(one.fullmatch(name) for one in used)] == []


@pytest.mark.parametrize("store", STORES)
def test_every_statement_says_what_it_does_takes_and_returns(store):
    wrong: list[str] = []
    for name, text in statements_of(f"gesta.stores.{store}").items():
        comment = [line for line in text.splitlines() if line.startswith("-- ")]
        body = text.split("\n", len(comment))[-1]
        if not comment or comment[0].startswith(("-- in: ", "-- out: ")):
            wrong.append(f"{name} does not say what it does")
        takes = bool(re.search(r"\{rows|\?|\$\d", body))
        if takes != any(line.startswith("-- in: ") for line in comment):
            wrong.append(f"{name}: its parameters and `in:` differ")
        changes = re.search(
            r"^(insert|update|delete|create|set|drop|pragma|vacuum)\b", body, re.MULTILINE
        )
        returns = "returning" in body or not changes
        if returns != any(line.startswith("-- out: ") for line in comment):
            wrong.append(f"{name}: what it returns and `out:` differ")
        if any(len(line) > 100 for line in text.splitlines()):
            wrong.append(f"{name} has a line of more than 100 columns")
    assert wrong == []


def test_a_name_is_given_once(tmp_path, monkeypatch):
    folder = tmp_path / "sql"
    folder.mkdir()
    for table in ("jobs", "leases"):
        (folder / f"{table}.sql").write_text("-- name: take\n-- Take.\nselect 1;\n")
    monkeypatch.setattr(statements, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="two statements are named take"):
        statements_of("some.store")
