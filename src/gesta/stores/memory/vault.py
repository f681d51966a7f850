"""Encrypted secrets in a dict. Implements gesta.ports.vault."""

import heapq
from collections.abc import Sequence

from gesta.ports.vault import Encrypted
from gesta.stores.memory.fences import MemoryFences

#: Tenant, name, version.
Ref = tuple[str, str, int]


class MemoryVault:
    def __init__(self, fences: MemoryFences | None = None) -> None:
        self._fences = fences or MemoryFences()
        self._boxes: dict[Ref, Encrypted] = {}
        #: The highest version of each (tenant, name).
        self._versions: dict[tuple[str, str], int] = {}

    async def put(self, encrypted: Sequence[Encrypted]) -> list[bool]:
        new = [box for box in encrypted if (box.tenant, box.name, box.version) not in self._boxes]
        if new:
            self._fences.check_tenants(box.tenant for box in new)
        return [self._put_one(box) for box in encrypted]

    async def get(self, refs: Sequence[Ref]) -> dict[Ref, Encrypted]:
        return {
            ref: held for ref in refs if (held := self._boxes.get(ref)) is not None and held.box
        }

    async def newest(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Encrypted]:
        return {
            name: self._boxes[*name, self._versions[name]]
            for name in names
            if name in self._versions
        }

    async def listed(self, after: Ref, limit: int) -> list[Encrypted]:
        return [
            self._boxes[ref]
            for ref in heapq.nsmallest(limit, (ref for ref in self._boxes if ref > after))
        ]

    async def delete(self, refs: Sequence[Ref]) -> None:
        self._fences.check_tenants(ref[0] for ref in refs)
        for ref in refs:
            if ref in self._boxes:
                self._boxes[ref] = Encrypted(*ref, b"")

    def destroy(self, tenant: str, name: str) -> None:
        """Destroy every version of a secret."""
        for version in range(1, self._versions.get((tenant, name), 0) + 1):
            if (tenant, name, version) in self._boxes:
                self._boxes[tenant, name, version] = Encrypted(tenant, name, version, b"")

    def _put_one(self, box: Encrypted) -> bool:
        ref = box.tenant, box.name, box.version
        if self._boxes.setdefault(ref, box) is not box:
            return False
        self._versions[ref[:2]] = max(box.version, self._versions.get(ref[:2], 0))
        return True
