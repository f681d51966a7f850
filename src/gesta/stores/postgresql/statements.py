"""The SQL of this adapter: one file per verb in sql/, read once, every name in it qualified by the
schema: no search path is ever set.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

VIEWS = "requests"


class Statements:
    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._texts: dict[tuple[str, str], str] = {}

    def __call__(self, name: str, table: str = VIEWS) -> str:
        """The text of sql/<name>.sql. `table` is where views are meant."""
        text = self._texts.get((name, table))
        if text is None:
            text = self.filled(_text(name), table)
            if table == VIEWS:
                self._texts[name, table] = text
        return text

    def filled(self, text: str, table: str = VIEWS) -> str:
        # Quoted, so that a schema may be called `user`; address.py lets no quote through.
        return text.replace("{schema}", f'"{self.schema}"').replace("{table}", table)


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
