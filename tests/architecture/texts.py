"""What may stand in no file of the project: the host of a package registry, a path of somebody's
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

#: Written with brackets so that this file does not find itself.
REGISTRY = re.compile(
    r"p[y]pi[.]org|python[h]osted[.]org|registry[.]n[p]m|n[p]mjs[.]|crates[.]io"
    r"|--(extra-)?index-url|--find[-]links|rubygems[.]"
)
MACHINE = re.compile(r"(?<![\w.}/:$])/(?:root|work|home/\w+|Users/\w+|opt/\w+)(?=/)|[.]pyenv\b")
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


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.startswith(".venv")
        )
        yield from (Path(folder) / name for name in sorted(files) if name not in SKIPPED)
