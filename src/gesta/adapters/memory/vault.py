"""Sealed secrets in a dict."""

from __future__ import annotations

from collections.abc import Sequence

from gesta.vault import Sealed

#: Tenant, name, version.
Ref = tuple[str, str, int]


class MemoryVault:
    """The vault of one process."""

    def __init__(self) -> None:
        self._boxes: dict[Ref, Sealed] = {}

    async def put(self, sealed: Sequence[Sealed]) -> list[bool]:
        return [self._put_one(box) for box in sealed]

    async def get(self, refs: Sequence[Ref]) -> dict[Ref, Sealed]:
        return {ref: self._boxes[ref] for ref in refs if ref in self._boxes}

    async def delete(self, refs: Sequence[Ref]) -> None:
        for ref in refs:
            self._boxes.pop(ref, None)

    def _put_one(self, box: Sealed) -> bool:
        ref = box.tenant, box.name, box.version
        return self._boxes.setdefault(ref, box) is box
