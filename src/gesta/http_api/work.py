"""Routes for external workers: lease work, extend a lease, report an outcome."""

from typing import Annotated, Any, Literal

import msgspec

from gesta.api_types.structs import Asked, ListOf
from gesta.api_types.work import LEASE, Extended, Recorded, Work
from gesta.domain.durations import iso
from gesta.domain.events import Actor
from gesta.domain.ids import REQUEST_ID
from gesta.domain.money import Money
from gesta.errors import Forbidden, InvalidRequest, StoreError
from gesta.flows.external import LEASE_SECONDS_MAX, LEASE_SECONDS_MIN
from gesta.flows.validation import decode_fields
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.reading import CallerGone
from gesta.http_api.requests import REQUEST_PATH, OfFlow, view_of
from gesta.http_api.route import Answer, Call, Route
from gesta.runtime.clock import turn
from gesta.worker.external.external import ITEMS_MAX, WAIT_SECONDS_MAX
from gesta.worker.external.reports import (
    Count,
    ExternalReport,
    Id,
    Name,
    Reason,
    RecordCompleted,
    RecordFailed,
    RecordSent,
    RecordUnknown,
    Seconds,
    Text,
)
from gesta.worker.external.work_item import Reported, WorkItem

#: Turns of the event loop after which a disconnected caller is noticed.
TURNS = 3

LeaseSeconds = Annotated[float, msgspec.Meta(ge=LEASE_SECONDS_MIN, le=LEASE_SECONDS_MAX)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_KINDS: dict[str, type[RecordSent | RecordCompleted | RecordFailed | RecordUnknown]] = {
    "recordSent": RecordSent,
    "recordCompleted": RecordCompleted,
    "recordFailed": RecordFailed,
    "recordUnknown": RecordUnknown,
}


class Take(Asked, frozen=True):
    """Leases up to `limit` requests; waits up to `waitSeconds` for the first one.

    Without `leaseSeconds`, the lease lasts as long as the flow declares.
    """

    limit: Annotated[int, msgspec.Meta(ge=1, le=ITEMS_MAX)] = 1
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0.0
    lease_seconds: LeaseSeconds | None = None


class Extend(Asked, frozen=True):
    token: Token
    lease_seconds: LeaseSeconds | None = None


class Outcome(Asked, frozen=True):
    """The outcome of leased work. `id` and `tenant` are optional and must be those of the request.

    recordSent takes providerMessageId and targetId; recordCompleted takes providerTxnId and amount,
    and is for tasks and transactions; recordFailed and recordUnknown take reason,
    lastError and retryAfterSec; recordFailed also takes retryable.
    """

    type: Literal["recordSent", "recordCompleted", "recordFailed", "recordUnknown"]
    token: Token
    #: The worker's own count. The engine's count decides about retries; if they differ, both are
    #: recorded.
    attempts: Count
    id: str | None = None
    tenant: str | None = None
    provider_message_id: Name | None = None
    target_id: Name | None = None
    provider_txn_id: Name | None = None
    amount: Money | None = None
    reason: Reason | None = None
    retryable: bool | None = None
    last_error: Text | None = None
    retry_after_sec: Seconds | None = None
    correlation_id: Id | None = None
    causation_id: Id | None = None
    actor: Actor | None = None


async def take_work(call: Call) -> Answer:
    """Lease work of the key's tenant, by long poll.

    Work that is not reported before its lease ends becomes unknown(no_report).
    """
    flow = _external(call, call.params["flow"])
    asked, external = call.body, call.engine.external
    taking = external.take(
        flow,
        tenant=call.tenant,
        limit=asked.limit,
        wait_seconds=asked.wait_seconds,
        lease_seconds=asked.lease_seconds,
    )
    # `take` releases the work when the caller disconnects meanwhile.
    items: list[WorkItem] = await call.while_there(taking)
    try:
        await call.while_there(_a_moment())
        if not await call.pipeline.keys.is_still_valid(call.grant):
            # The key was revoked or expired during the wait.
            raise Forbidden
    except (CallerGone, Forbidden, StoreError):
        # Nothing of the work was sent to the caller, so others may have it.
        await external.give_back(items, tenant=call.tenant)
        raise
    return Answer(ListOf(items=[_work(item) for item in items]))


async def show_work(call: Call) -> Answer:
    """The details of leased work."""
    request_id, flow = await _named(call)
    token = call.header(LEASE.lower())
    if not token:
        raise invalid({LEASE: "missing: the token of the lease"})
    return Answer(
        _work(await call.engine.external.fetch(flow, request_id, token, tenant=call.tenant))
    )


async def extend_lease(call: Call) -> Answer:
    """Extend the lease of work.

    The answer also says whether the request was cancelled meanwhile.
    """
    (request_id, flow), asked = await _named(call), call.body
    lease = await call.engine.external.extend(
        flow, request_id, asked.token, asked.lease_seconds, tenant=call.tenant
    )
    return Answer(Extended(iso(lease.lease_until), lease.cancel_requested))


async def report_outcome(call: Call) -> Answer:
    """Report the outcome of work.

    A success always counts, however late. A failure after the lease was lost is answered 409 with
    the current state.
    """
    (request_id, flow), asked = await _named(call), call.body
    report = _report(asked, request_id, call.tenant)
    try:
        answer = await call.engine.external.report(
            flow, request_id, asked.token, report, tenant=call.tenant, by=call.actor
        )
    except InvalidRequest as error:
        raise invalid(error.fields) from None
    return Answer(recorded(answer))


def recorded(answer: Reported) -> Recorded:
    next_at = None if answer.next_attempt_at is None else iso(answer.next_attempt_at)
    return Recorded(
        answer.flow, answer.id, answer.status, answer.attempts, answer.reason or None, next_at
    )


def _report(asked: Outcome, request_id: str, tenant: str) -> ExternalReport:
    """The report of its kind; raises an error for every field that is missing or does not belong to
    it.
    """
    kind = _KINDS[asked.type]
    known = {field.name: field.encode_name for field in msgspec.structs.fields(asked)}
    given = {
        known[name]: getattr(asked, name) for name in known if getattr(asked, name) is not None
    }
    errors = {}
    if given.pop("id", request_id) != request_id:
        errors["id"] = "is not that of the request"
    if given.pop("tenant", tenant) != tenant:
        errors["tenant"] = "is not that of the key"
    del given["type"], given["token"]
    report, more = decode_fields(kind, msgspec.to_builtins(given))
    if report is None or errors:
        raise invalid(errors | more)
    return report


async def _a_moment() -> None:
    for _ in range(TURNS):
        await turn()


def _external(call: Call, name: str) -> str:
    """The name of an external flow; raises where it is unknown or not external."""
    flow = call.engine.flows.get(name)
    if flow is None:
        raise Problem(
            404,
            "not_found",
            f"no flow {name!r} is declared here; known:"
            f" {', '.join(sorted(call.engine.flows)) or 'none'}",
        )
    if not flow.is_external:
        raise Problem(409, "not_external", f"{name} is not an external flow: gesta executes it")
    return name


async def _named(call: Call) -> tuple[str, str]:
    """The id and the flow of the request. With `?flow=` this costs no read of the store."""
    request_id, flow = call.params["id"], call.query.flow
    if flow is None or not REQUEST_ID.fullmatch(request_id):
        flow = (await view_of(call)).state.flow
    return request_id, _external(call, flow)


def _work(item: WorkItem) -> Work:
    return Work(
        flow=item.flow,
        id=item.id,
        token=item.token,
        lease_until=iso(item.lease_until),
        attempt=item.attempt,
        key=item.key,
        payload=msgspec.json.decode(item.payload, type=dict[str, Any]),
        correlation_id=item.correlation_id,
        created_at=iso(item.created_at),
        due_at=None if item.due_at is None else iso(item.due_at),
        expires_at=None if item.expires_at is None else iso(item.expires_at),
        priority=item.priority,
        cancel_requested=item.cancel_requested,
        operation=item.operation,
        amount=item.amount,
    )


ROUTES = [
    Route(
        "POST",
        "/v1/flows/{flow}/work",
        take_work,
        "execute",
        "Lease work, by long poll",
        "external work",
        body=Take,
        answer=ListOf[Work],
        problems=(404, 409),
        example={"limit": 5, "waitSeconds": 20},
    ),
    Route(
        "GET",
        f"{REQUEST_PATH}/work",
        show_work,
        "execute",
        "Get leased work",
        "external work",
        query=OfFlow,
        answer=Work,
        problems=(404, 409, 410),
        headers={LEASE: "The token of the lease"},
    ),
    Route(
        "POST",
        f"{REQUEST_PATH}/lease",
        extend_lease,
        "execute",
        "Extend a lease",
        "external work",
        query=OfFlow,
        body=Extend,
        answer=Extended,
        problems=(404, 409),
        example={"token": "the token of the lease", "leaseSeconds": 60},
    ),
    Route(
        "POST",
        f"{REQUEST_PATH}/outcome",
        report_outcome,
        "execute",
        "Report an outcome",
        "external work",
        query=OfFlow,
        body=Outcome,
        answer=Recorded,
        problems=(404, 409),
        example={
            "type": "recordSent",
            "token": "the token of the lease",
            "attempts": 1,
            "providerMessageId": "box-9",
        },
    ),
]
