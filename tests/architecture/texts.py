"""What may be in no file of the project: the host of a package registry, a path of one machine; and
in no name, comment or docstring: a word that hides who acts.
"""

from __future__ import annotations

import io
import os
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

#: Written with brackets so that this file does not find itself.
REGISTRY = re.compile(
    r"p[y]pi[.]org|python[h]osted[.]org|registry[.]n[p]m|n[p]mjs[.]|crates[.]io"
    r"|--(extra-)?index-url|--find[-]links|rubygems[.]"
)
MACHINE = re.compile(r"(?<![\w.}/:$])/(?:root|work|home/\w+|Users/\w+|opt/\w+)(?=/)|[.]pyenv\b")
#: Words that hide who acts or what happens. Texts that a test compares may have them. Written with
#: brackets so that this file does not find itself.
PRIVATE = re.compile(r"(?<![a-z])(t[o]ld|n[o]body|s[o]mebody|wh[o]ever|up[k]eep)(?![a-z])")
#: Made on the machine, never part of the project.
SKIPPED = frozenset(
    {
        ".git",
        ".hypothesis",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "__pycache__",
        "dist",
        "node_modules",
    }
)


def check_texts(root: Path) -> list[str]:
    found = []
    for path in _files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                f"{path.relative_to(root).as_posix()}:{number}: {what}: {match[0]}"
                for what, pattern in (("registry host", REGISTRY), ("path of a machine", MACHINE))
                if (match := pattern.search(line))
            ]
    return found


def check_words(root: Path) -> list[str]:
    """Private words in names, comments and docstrings of Python files."""
    found = []
    for path in _files(root):
        if path.suffix != ".py":
            continue
        text = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_prose = token.type == tokenize.COMMENT or token.string.startswith('"""')
            words = token.string.lower() if is_prose else token.string
            if (is_prose or token.type == tokenize.NAME) and (match := PRIVATE.search(words)):
                place = f"{path.relative_to(root).as_posix()}:{token.start[0]}"
                found.append(f"{place}: private word: {match[0]}")
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.startswith(".venv")
        )
        yield from (Path(folder) / name for name in sorted(files) if name not in SKIPPED)
