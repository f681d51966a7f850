"""Keys and the trail of changes, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from gesta.api_types.keys import ChangeShape, KeyList, KeyShape, MadeKey, Trail
from gesta.api_types.structs import PAGE_MAX
from gesta.client.calls import Calls, Json


class AccessCalls(Calls):
    async def keys(self) -> list[KeyShape]:
        """The tenant's keys, without their texts."""
        return (await self.read("keys", answer=KeyList)).keys

    async def create_key(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("read", "submit"),
        expires_at: datetime | None = None,
        test: bool = False,
        by: str | None = None,
    ) -> MadeKey:
        """A new key, shown this once.

        Not repeated when the answer is lost: that would be a second key.
        """
        body: Json = {"name": name, "scopes": list(scopes), "expiresAt": expires_at, "test": test}
        return await self.post("keys", answer=MadeKey, body=body, by=by)

    async def revoke_key(self, key_id: str, *, by: str | None = None) -> KeyShape:
        """End a key for good. Safe to repeat."""
        return await self.change("DELETE", "keys", key_id, answer=KeyShape, by=by)

    async def audit(self, *, limit: int | None = None) -> AsyncIterator[ChangeShape]:
        """Who changed what, newest first."""
        before: int | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(PAGE_MAX, left)
            got = await self.read("audit", answer=Trail, query={"before": before, "limit": size})
            for item in got.items:
                yield item
            left = None if left is None else left - len(got.items)
            before = got.next
            if before is None:
                return
