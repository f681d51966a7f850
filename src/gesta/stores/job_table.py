"""The operations on rows of stored jobs that are the same in every store with transactions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import cast

from gesta.ports.job_store import Claim, Completion, Failing, Held, Postponement, Pulse
from gesta.stores import job_rows
from gesta.stores.job_rows import Decide


class RowTable(ABC):
    """A store brings `change`, and `get`, `create`, `claim` and `reap` of JobTable."""

    @abstractmethod
    async def change(self, changes: Sequence[tuple[str, Decide]]) -> list[str]:
        """Apply each decision to the row of its id, all in one transaction; the answers, or
        NOT_FOUND.
        """

    @abstractmethod
    async def get(self, ids: Sequence[str]) -> list[Mapping[str, str] | str]: ...

    async def update(self, rows: Sequence[tuple[Mapping[str, str], Held | None]]) -> list[str]:
        return await self.change([(row["Id"], job_rows.update(row, held)) for row, held in rows])

    async def claim_by_id(
        self, ids: Sequence[str], claim: Claim, token: str
    ) -> list[tuple[str, Mapping[str, str] | str]]:
        codes = await self.change([(one, job_rows.claim_by_id(claim, token)) for one in ids])
        claimed = [one for one, code in zip(ids, codes, strict=True) if code == "OK"]
        found = dict(zip(claimed, await self.get(claimed), strict=True))
        return [(one, found.get(one, code)) for one, code in zip(ids, codes, strict=True)]

    async def complete(self, ends: Sequence[Completion]) -> list[str]:
        return await self.change([(one.held.id, job_rows.complete(one)) for one in ends])

    async def fail(self, ends: Sequence[Failing]) -> list[str]:
        return await self.change([(one.held.id, job_rows.fail(one)) for one in ends])

    async def reschedule(self, ends: Sequence[Postponement]) -> list[str]:
        return await self.change([(one.held.id, job_rows.reschedule(one)) for one in ends])

    async def release(self, held: Sequence[Held]) -> list[str]:
        return await self.change([(one.id, job_rows.release(one)) for one in held])

    async def heartbeat(self, held: Sequence[Held], lease_seconds: float) -> list[Pulse]:
        codes = await self.change(
            [(one.id, job_rows.heartbeat(one, lease_seconds)) for one in held]
        )
        return [cast("Pulse", "lost" if code == "NOT_FOUND" else code) for code in codes]

    async def cancel(self, ids: Sequence[str]) -> list[str]:
        return await self.change([(one, job_rows.cancel) for one in ids])
