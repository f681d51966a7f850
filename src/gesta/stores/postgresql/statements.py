"""The named statements of this adapter. Every table is qualified by the schema."""

from gesta.stores.statements import statements_of

VIEWS = "requests"


class Statements:
    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._texts: dict[tuple[str, str], str] = {}

    def __call__(self, name: str, table: str = VIEWS) -> str:
        """The text of a statement. `table` names the table of views."""
        text = self._texts.get((name, table))
        if text is None:
            text = self.filled(statements_of(__package__)[name], table)
            if table == VIEWS:
                self._texts[name, table] = text
        return text

    def filled(self, text: str, table: str = VIEWS) -> str:
        # Quoted, so that a schema may be called `user`; address.py lets no quote through.
        return text.replace("{schema}", f'"{self.schema}"').replace("{table}", table)
