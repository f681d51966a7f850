"""The migrations of an adapter: numbered .sql files, each applied once, in order.

The adapter locks the store and runs the text.
"""

import re
from importlib.resources import files

import msgspec

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str


def migrations_of(package: str) -> list[Migration]:
    """The migrations in `<package>/migrations`, numbered from 1 without a gap."""
    folder = files(package).joinpath("migrations")
    found = [
        Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"{package}: migrations must be numbered 0001, 0002, … without a gap")
    return found
