"""Port: the vault holds encrypted secrets, separate from events, jobs and views.

It never sees clear text: security/envelope_encryption.py encrypts and decrypts.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Encrypted(msgspec.Struct, frozen=True):
    """A version of a secret, encrypted. A written version never changes."""

    tenant: str
    name: str
    version: int
    box: bytes

    def __repr__(self) -> str:
        return f"Encrypted({self.tenant}/{self.name} v{self.version})"


class Vault(Protocol):
    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        """True: written. False: the version exists or was destroyed, and stays so."""

    async def get(
        self, refs: Sequence[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Encrypted]:
        """The versions of (tenant, name, version) that exist."""

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        """The highest version of each (tenant, name); with an empty box if it was destroyed."""

    async def listed(self, after: tuple[str, str, int], limit: int) -> list[Encrypted]:
        """Versions in the order of tenant, name, version after a position.

        A destroyed one has an empty box; `put` accepts it like that.
        """

    async def delete(self, refs: Sequence[tuple[str, str, int]]) -> None:
        """Destroy versions for good: the store removes every trace of the box that it can, and the
        version never comes back.
        """
