"""The named SQL statements of an adapter: `sql/<table>.sql`, each file read once.

A statement begins with `-- name: <name>`. The comment below states what it does; `in:` lists its
parameters and `out:` the columns that it returns.
"""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def statements_of(package: str) -> dict[str, str]:
    """The statements in `<package>/sql` by name, comments included."""
    found: dict[str, str] = {}
    for file in files(package).joinpath("sql").iterdir():
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{package}: two statements are named {name}")
            found[name] = text.strip()
    return found
