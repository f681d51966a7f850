"""Calls about requests: submit, follow, decide; and about work for external workers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from gesta.api_types.requests import (
    BATCH_MAX,
    WAIT_SECONDS_MAX,
    AttemptRepresentation,
    BatchResult,
    Decided,
    EventRepresentation,
    RequestRepresentation,
    StreamEvent,
    Submit,
    Submitted,
    Whole,
)
from gesta.api_types.structs import ListOf
from gesta.api_types.transactions import ReconciliationRepresentation, TransactionRepresentation
from gesta.api_types.work import LEASE, Extended, Recorded, Work
from gesta.client.connection import Ask, Calls, Json, path_of
from gesta.client.events import follow
from gesta.domain.money import Money
from gesta.errors import InvalidRequest, OutcomeTimeout

#: How often the rest of a batch is sent again after a store error.
ROUNDS = 5
#: The approximate maximum size of the body of a batch.
BATCH_BYTES = 4 * 1024 * 1024
#: How much longer than other calls a reconciliation may take: it reads the ledger page by page.
RECONCILE_SECONDS = 600.0


class SubmitOptions(TypedDict, total=False):
    key: str | None
    deliver_at: datetime | None
    ttl: timedelta | None
    priority: int
    correlation_id: str | None
    causation_id: str | None


class RequestCalls(Calls):
    async def submit(
        self,
        flow: str,
        payload: Mapping[str, Any] | msgspec.Struct,
        *,
        wait: float = 0.0,
        by: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Submitted:
        """Submit a request; when this returns, it is on disk.

        `wait` holds the answer back for up to that many seconds.

        Without a key the client makes one, so that a repeated call is a duplicate. A payload with
        its own id is keyed by that id.
        """
        given: Json = {**options}
        ttl_seconds = _seconds(given.pop("ttl", None))
        asked = Submit(flow, _fields(payload), ttl_seconds=ttl_seconds, **given)

        async def sent(body: Json) -> Submitted:
            return await self.post(
                "requests",
                answer=Submitted,
                body=body,
                query=_wait(wait),
                by=by,
                repeat=True,
                wait=wait,
            )

        try:
            return await sent(_slim(self._keyed(asked)))
        except InvalidRequest as error:
            if not _brings_its_own(asked, error.fields):
                raise
        return await sent(_slim(asked))

    async def submit_many(
        self, requests: Sequence[Submit], *, by: str | None = None
    ) -> list[BatchResult]:
        """One verdict for each request, in their order.

        Requests that a store error left unwritten are sent again.
        """
        asked = [_slim(self._keyed(one)) for one in requests]
        results: list[BatchResult | None] = [None] * len(asked)
        left = list(range(len(asked)))
        for _ in range(ROUNDS):
            for positions in _parts(asked, left):
                body = {"requests": [asked[position] for position in positions]}
                answer = await self.post(
                    "requests", "batch", answer=ListOf[BatchResult], body=body, by=by, repeat=True
                )
                for position, result in zip(positions, answer.items, strict=True):
                    results[position] = result
            left = [
                position
                for position in left
                if self._is_left(requests[position], results[position])
            ]
            if not left:
                break
            for position in left:
                if _brings_its_own(requests[position], _errors(results[position])):
                    asked[position] = _slim(requests[position])
            await self.rest()
        return [one for one in results if one is not None]

    async def get(self, request_id: str, *, flow: str | None = None, wait: float = 0.0) -> Whole:
        """The current state of a request; with `wait`, the state when it has ended, or after that
        many seconds.

        Every call that names a request takes `flow`. It is needed only where several flows have a
        request with this id; without it AmbiguousId is raised then.
        """
        query = {"flow": flow, **_wait(wait)}
        return await self.read("requests", request_id, answer=Whole, query=query, wait=wait)

    async def wait(
        self,
        request_id: str,
        timeout: float = 30.0,  # noqa: ASYNC109 -- the name that callers expect
        *,
        flow: str | None = None,
    ) -> Whole:
        """Wait until the request ends. Raises OutcomeTimeout after `timeout` seconds; the request
        goes on.
        """
        clock = self.line.clock
        until = clock.monotonic() + timeout
        while True:
            left = max(0.0, until - clock.monotonic())
            wait = min(left, WAIT_SECONDS_MAX)
            query = {"flow": flow, **_wait(wait)}
            shown = await self.read(
                "requests", request_id, answer=Whole, query=query, wait=wait, patience=left
            )
            if has_ended(shown):
                return shown
            if clock.monotonic() >= until:
                held = "" if shown.held_by is None else shown.held_by.advice
                raise OutcomeTimeout(
                    request_id, shown, timeout, cause=held and f"it is held: {held}"
                )

    def find(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[RequestRepresentation]:
        """The tenant's requests, newest first. `key` selects the requests that this key led to."""
        query = {"flow": flow, "status": status, "key": key}
        return self.pages(
            "requests",
            answer=ListOf[RequestRepresentation],
            query=query,
            limit=limit,
        )

    async def events(
        self, request_id: str, *, flow: str | None = None
    ) -> list[EventRepresentation]:
        """Every event of a request, oldest first."""
        query = {"flow": flow}
        return (
            await self.read(
                "requests", request_id, "events", answer=ListOf[EventRepresentation], query=query
            )
        ).items

    async def attempts(
        self, request_id: str, *, flow: str | None = None
    ) -> list[AttemptRepresentation]:
        """Every attempt of a request, oldest first."""
        query = {"flow": flow}
        return (
            await self.read(
                "requests",
                request_id,
                "attempts",
                answer=ListOf[AttemptRepresentation],
                query=query,
            )
        ).items

    async def stream(
        self, *, flow: str = "*", request_id: str | None = None, last_id: str | None = None
    ) -> AsyncIterator[StreamEvent]:
        """Events as they happen, without an end. A broken connection is made again and no event is
        missed.
        """
        query = {"flow": flow} if request_id is None else {"flow": flow, "request": request_id}
        async with aclosing(follow(self.line, query, last_id)) as events:
            async for event in events:
                if event is not None:
                    yield event

    async def cancel(
        self, request_id: str, *, flow: str | None = None, by: str | None = None
    ) -> Decided:
        """Cancel a request. A running attempt finishes first; if it succeeds, the request stays
        `sent`.

        Repeated when the answer is lost: a cancelled request stays cancelled.
        """
        return await self._decide("cancel", request_id, flow=flow, by=by, repeat=True)

    async def retry(
        self, request_id: str, *, flow: str | None = None, by: str | None = None
    ) -> Decided:
        """Make the next attempt due now.

        Not repeated when the answer is lost: that could cause one attempt more.
        """
        return await self._decide("retry", request_id, flow=flow, by=by)

    async def redrive(
        self,
        request_id: str,
        *,
        flow: str | None = None,
        ttl: timedelta | None = None,
        again: bool = False,
        by: str | None = None,
    ) -> Decided:
        """Execute a request again after a final failure, with a new budget of attempts.

        Not repeated when the answer is lost: the request may have failed once more meanwhile.
        """
        body = {"ttlSeconds": _seconds(ttl), "again": again}
        return await self._decide("redrive", request_id, body, flow=flow, by=by)

    async def resolve(
        self,
        request_id: str,
        outcome: Literal["succeeded", "not_executed", "failed"],
        *,
        evidence: str,
        provider_id: str | None = None,
        amount: Money | None = None,
        flow: str | None = None,
        by: str | None = None,
    ) -> Decided:
        """Record the outcome of a request whose outcome was unknown. `amount`: what a transaction
        has moved, if that is not what was asked for.

        With `not_executed` it is executed again, with a new budget of attempts.

        Not repeated when the answer is lost: the outcome may be unknown again by then.
        """
        body: Json = {
            "outcome": outcome,
            "evidence": evidence,
            "id": provider_id,
            "amount": _money(amount),
        }
        return await self._decide("resolve", request_id, body, flow=flow, by=by)

    async def capture(
        self,
        request_id: str,
        amount: Money | None = None,
        *,
        key: str,
        final: bool = True,
        flow: str | None = None,
        by: str | None = None,
    ) -> Decided:
        """Take part or all of what was authorized. Repeated when the answer is lost, with the same
        key.
        """
        body: Json = {"amount": _money(amount), "key": key, "final": final}
        return await self._decide("capture", request_id, body, flow=flow, by=by, repeat=True)

    async def post_reservation(
        self,
        request_id: str,
        amount: Money | None = None,
        *,
        key: str,
        final: bool = True,
        flow: str | None = None,
        by: str | None = None,
    ) -> Decided:
        """Transfer part or all of what was reserved; as `capture`."""
        body: Json = {"amount": _money(amount), "key": key, "final": final}
        return await self._decide("post", request_id, body, flow=flow, by=by, repeat=True)

    async def refund(
        self,
        request_id: str,
        amount: Money | None = None,
        *,
        key: str,
        flow: str | None = None,
        by: str | None = None,
    ) -> Decided:
        """Give part or all of what was captured back."""
        body: Json = {"amount": _money(amount), "key": key}
        return await self._decide("refund", request_id, body, flow=flow, by=by, repeat=True)

    async def void(
        self, request_id: str, *, flow: str | None = None, by: str | None = None
    ) -> Decided:
        """Release what was authorized and not captured."""
        return await self._decide("void", request_id, {}, flow=flow, by=by)

    async def reverse(
        self, request_id: str, *, flow: str | None = None, by: str | None = None
    ) -> Decided:
        """Take a transaction back: void it, or refund it where it was captured."""
        return await self._decide("reverse", request_id, {}, flow=flow, by=by)

    async def transaction(
        self, request_id: str, *, flow: str | None = None
    ) -> TransactionRepresentation:
        """The amounts of a transaction."""
        return await self.read(
            "transactions", request_id, answer=TransactionRepresentation, query={"flow": flow}
        )

    async def reconcile(
        self,
        gateway: str,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        by: str | None = None,
    ) -> ReconciliationRepresentation:
        """Compare a gateway's ledger with gesta's record, and correct the record. Safe to repeat.

        Without `until` until now; without `since` three days.
        """
        body: Json = {"gateway": gateway, "from": _moment(since), "to": _moment(until)}
        return await self.change(
            "POST",
            "reconciliations",
            answer=ReconciliationRepresentation,
            body=body,
            by=by,
            wait=RECONCILE_SECONDS,
        )

    async def _decide(
        self,
        action: str,
        request_id: str,
        body: Json | None = None,
        *,
        flow: str | None,
        by: str | None,
        repeat: bool = False,
    ) -> Decided:
        return await self.post(
            "requests",
            request_id,
            action,
            answer=Decided,
            body=body,
            query={"flow": flow},
            by=by,
            repeat=repeat,
        )

    def _is_left(self, asked: Submit, result: BatchResult | None) -> bool:
        return (
            result is None
            or result.verdict == "not_written"
            or _brings_its_own(asked, _errors(result))
        )

    def _keyed(self, asked: Submit) -> Submit:
        if asked.key is not None or not self.line.loses_answers:
            return asked
        return msgspec.structs.replace(asked, key=self._new_key())


class WorkCalls(Calls):
    """For external workers: lease work, extend the lease, report the outcome."""

    async def take_work(
        self, flow: str, *, limit: int = 1, wait: float = 0.0, lease_seconds: float | None = None
    ) -> list[Work]:
        """Lease work; wait for it at most `wait` seconds.

        Not repeated when the answer is lost: that work returns when its lease ends.
        """
        body = {"limit": limit, "waitSeconds": wait, "leaseSeconds": lease_seconds}
        return (
            await self.post("flows", flow, "work", answer=ListOf[Work], body=body, wait=wait)
        ).items

    async def get_work(self, flow: str, request_id: str, token: str) -> Work:
        """The details of leased work."""
        path, query = path_of("requests", request_id, "work"), {"flow": flow}
        return await self.line.ask(
            Ask("GET", path, is_repeatable=True, query=query, headers={LEASE: token}), Work
        )

    async def extend_work(
        self, flow: str, request_id: str, token: str, lease_seconds: float | None = None
    ) -> Extended:
        """Extend a lease. Safe to repeat."""
        body = {"token": token, "leaseSeconds": lease_seconds}
        return await self.post(
            "requests",
            request_id,
            "lease",
            answer=Extended,
            body=body,
            query={"flow": flow},
            repeat=True,
        )

    async def report_sent(
        self, work: Work, *, provider_message_id: str | None = None, target_id: str | None = None
    ) -> Recorded:
        """Report success. Safe to repeat: a repeated report counts once."""
        return await self._report(
            work, "recordSent", providerMessageId=provider_message_id, targetId=target_id
        )

    async def report_completed(
        self, work: Work, *, provider_txn_id: str | None = None, amount: Money | None = None
    ) -> Recorded:
        """Report that a task or an operation of a transaction was done. Safe to repeat."""
        return await self._report(
            work, "recordCompleted", providerTxnId=provider_txn_id, amount=_money(amount)
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
        """Report that the work was not done.

        `retryable`: it is tried again by the flow's retry policy, or after `retry_after_seconds`.
        Safe to repeat.
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
        """Report that it is unknown whether the work was done. Safe to repeat."""
        return await self._report(work, "recordUnknown", reason=reason, lastError=last_error)

    async def _report(self, work: Work, kind: str, **fields: Any) -> Recorded:
        given = {name: value for name, value in fields.items() if value is not None}
        body = {"type": kind, "token": work.token, "attempts": work.attempt, **given}
        return await self.post(
            "requests",
            work.id,
            "outcome",
            answer=Recorded,
            body=body,
            query={"flow": work.flow},
            repeat=True,
        )


def _errors(result: BatchResult | None) -> Mapping[str, str]:
    return {} if result is None or result.problem is None else result.problem.errors


def _brings_its_own(asked: Submit, errors: Mapping[str, str]) -> bool:
    """Whether the only error is the key that this client made: the payload has its own id."""
    return asked.key is None and set(errors) == {"key"}


def has_ended(request: RequestRepresentation) -> bool:
    """Whether nothing more happens to the request without a command."""
    if request.status == "unknown":
        return request.due_at is None
    return request.status not in ("requested", "validated", "queued", "waiting")


def _fields(payload: Mapping[str, Any] | msgspec.Struct) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(payload)
    return given


def _slim(asked: Submit) -> Json:
    """The fields without those that are None."""
    fields: Json = msgspec.to_builtins(asked)
    return {name: value for name, value in fields.items() if value is not None}


def _money(amount: Money | None) -> Json | None:
    return None if amount is None else {"amount": amount.amount, "currency": amount.currency}


def _moment(given: datetime | None) -> str | None:
    return None if given is None else given.isoformat()


def _seconds(ttl: timedelta | None) -> float | None:
    return None if ttl is None else ttl.total_seconds()


def _wait(seconds: float) -> dict[str, Any]:
    return {"wait": f"{round(min(seconds, WAIT_SECONDS_MAX) * 1000)}ms"} if seconds > 0 else {}


def _parts(asked: Sequence[Json], positions: Sequence[int]) -> list[list[int]]:
    """The positions in groups that fit into one body, by count and by size."""
    parts: list[list[int]] = []
    size = 0
    for position in positions:
        length = len(msgspec.json.encode(asked[position]))
        if not parts or len(parts[-1]) >= BATCH_MAX or size + length > BATCH_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(position)
        size += length
    return parts
