"""Where a call works: what people are advised to type next has to work there as it stands."""

from __future__ import annotations

import shlex

import msgspec


class Target(msgspec.Struct, frozen=True):
    """The options of a call that a further command must repeat to be about the same requests.

    What comes from the settings need not be repeated.
    """

    tenant: str = ""
    app: str = ""
    #: The store, or the server that was asked.
    store: str = ""

    def command(self, words: str) -> str:
        """A command about requests of this tenant."""
        return f"gesta {words}{self.tenant}{self.app}{self.store}"

    def process(self, words: str) -> str:
        """A command for every tenant: a process of this very program, or one that names whose it is
        about itself.
        """
        return f"gesta {words}{self.app}{self.store}"

    def process_of_another(self, words: str) -> str:
        """A process of a program that is not known here."""
        return f"gesta {words} --app …{self.store}"


#: Where nothing has to be repeated.
HERE = Target()


def options(**given: str | None) -> str:
    """Options as they are written behind a command, with a blank before each; those that were not
    given are left out.
    """
    return "".join(
        f" --{name} {shlex.quote(value)}" for name, value in given.items() if value is not None
    )
