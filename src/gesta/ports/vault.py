"""Port: the vault holds sealed secrets apart from the log: durable, mutable, never in events, jobs
or views.

The vault never sees clear text: sealing.py seals before and opens after.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Encrypted(msgspec.Struct, frozen=True):
    """A secret's version, encrypted. Versions of a name never change once written."""

    tenant: str
    name: str
    version: int
    box: bytes

    def __repr__(self) -> str:
        return f"Sealed({self.tenant}/{self.name} v{self.version})"


class Vault(Protocol):
    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        """True: written.

        False: that version exists already and stays as it is, or it was destroyed and stays so.
        """

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        """The sealed versions of (tenant, name, version) that exist."""

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        """The highest version ever written of each (tenant, name); its box is empty when that
        version was destroyed.
        """

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        """Versions in the order of tenant, name, version, from behind `after`; a destroyed one with
        an empty box, as `put` takes it, too.
        """

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        """Destroy versions for good: no trace of the box is left where the store can help it, and
        the version never comes back.
        """
