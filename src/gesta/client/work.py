"""External work over HTTP: take it, go on with it, say what became of it."""

from __future__ import annotations

from typing import Any

from gesta.api_types.work import LEASE, Extended, Recorded, Work, WorkItems
from gesta.client.calls import Calls
from gesta.client.connection import Ask, path_of


class WorkCalls(Calls):
    async def take_work(
        self, flow: str, *, limit: int = 1, wait: float = 0.0, lease_seconds: float | None = None
    ) -> list[Work]:
        """Work to be done, waited for at most `wait` seconds.

        Not repeated when the answer is lost: that work comes back when its lease ends.
        """
        body = {"limit": limit, "waitSeconds": wait, "leaseSeconds": lease_seconds}
        return (
            await self.post("flows", flow, "work", answer=WorkItems, body=body, wait=wait)
        ).items

    async def get_work(self, flow: str, request_id: str, token: str) -> Work:
        """Work that was taken elsewhere, as it was handed out."""
        path = path_of("requests", flow, request_id, "work")
        return await self.line.ask(
            Ask("GET", path, {}, None, {LEASE: token}, is_repeatable=True), Work
        )

    async def extend_work(
        self, flow: str, request_id: str, token: str, lease_seconds: float | None = None
    ) -> Extended:
        """More time. Safe to repeat."""
        body = {"token": token, "leaseSeconds": lease_seconds}
        return await self.post(
            "requests", flow, request_id, "lease", answer=Extended, body=body, repeat=True
        )

    async def report_sent(
        self, work: Work, *, provider_message_id: str | None = None, target_id: str | None = None
    ) -> Recorded:
        """It is done. Safe to repeat: the same report twice is one."""
        return await self._report(
            work, "recordSent", providerMessageId=provider_message_id, targetId=target_id
        )

    async def report_failed(
        self,
        work: Work,
        reason: str,
        *,
        retryable: bool = False,
        last_error: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> Recorded:
        """It is not done.

        `retryable`: it is tried again by the flow's rules, or after so many seconds. Safe to
        repeat.
        """
        fields = {
            "retryable": retryable,
            "lastError": last_error,
            "retryAfterSec": retry_after_seconds,
        }
        return await self._report(work, "recordFailed", reason=reason, **fields)

    async def report_unknown(
        self, work: Work, reason: str, *, last_error: str | None = None
    ) -> Recorded:
        """Nobody knows whether it is done. Safe to repeat."""
        return await self._report(work, "recordUnknown", reason=reason, lastError=last_error)

    async def _report(self, work: Work, kind: str, **fields: Any) -> Recorded:
        told = {name: value for name, value in fields.items() if value is not None}
        body = {"type": kind, "token": work.token, "attempts": work.attempt, **told}
        return await self.post(
            "requests", work.flow, work.id, "outcome", answer=Recorded, body=body, repeat=True
        )
