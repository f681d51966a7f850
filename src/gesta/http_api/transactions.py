"""Transactions: authorize, capture, post, void, refund, reverse; their amounts; reconciliation."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from gesta.admin.transactions import reconciliation_representation, transaction_representation
from gesta.api_types.requests import Decided, Submit, Submitted
from gesta.api_types.structs import Asked
from gesta.api_types.transactions import (
    Authorize,
    Capture,
    Reconcile,
    ReconciliationRepresentation,
    Refund,
    TakeBack,
    TransactionRepresentation,
)
from gesta.engine.request import Request
from gesta.http_api.problem import Problem, invalid
from gesta.http_api.requests import REQUEST_PATH, OfFlow, Wait, handle, submit, view_of
from gesta.http_api.route import Answer, Call, Route
from gesta.payments.reconcile import WINDOW_MAX, window_errors

_FIRST = {"payment.transfer": "reserve"}
#: The window of a reconciliation that names no start: those of daily runs overlap by two days.
_WINDOW = timedelta(days=3)


async def authorize(call: Call) -> Answer:
    """Reserve an amount, to be captured later. The answer is the same as for a submit."""
    asked: Authorize = call.body
    operation = _FIRST.get(asked.flow, "authorize")
    call.body = Submit(asked.flow, {**asked.payload, "operation": operation}, asked.key)
    return await submit(call)


async def show_transaction(call: Call) -> Answer:
    """The amounts of a transaction: authorized, captured, refunded, unknown."""
    return Answer(transaction_representation((await view_of(call)).state))


async def capture(call: Call) -> Answer:
    """Capture part or all of the authorized amount."""
    request, asked = await _transaction(call), call.body
    status = await request.capture(asked.amount, key=asked.key, final=asked.final, actor=call.actor)
    return _opened(request, status)


async def post_reservation(call: Call) -> Answer:
    """Post part or all of the reserved amount."""
    request, asked = await _transaction(call), call.body
    status = await request.post(asked.amount, key=asked.key, final=asked.final, actor=call.actor)
    return _opened(request, status)


async def refund(call: Call) -> Answer:
    """Return part or all of the captured amount."""
    request, asked = await _transaction(call), call.body
    status = await request.refund(asked.amount, key=asked.key, actor=call.actor)
    return _opened(request, status)


async def void(call: Call) -> Answer:
    """Release the amount that was authorized and not captured."""
    request, asked = await _transaction(call), call.body
    return _opened(request, await request.void(key=asked.key, actor=call.actor))


async def reverse(call: Call) -> Answer:
    """Reverse a transaction: void it, or refund it if it was captured."""
    request, asked = await _transaction(call), call.body
    return _opened(request, await request.reverse(key=asked.key, actor=call.actor))


async def reconcile(call: Call) -> Answer:
    """Compare a gateway's ledger with gesta's record, and correct the record. Safe to repeat."""
    asked: Reconcile = call.body
    now = datetime.fromtimestamp(call.pipeline.runtime.now_ms() / 1000, UTC)
    until = asked.until or now
    since = asked.since or until - _WINDOW
    if window_errors(since, until):
        raise invalid({"to": f"after `from`, by at most {WINDOW_MAX.days} days"})
    report = await call.engine.admin.reconcile(
        asked.gateway, since, until, tenant=call.tenant, actor=call.actor
    )
    return Answer(reconciliation_representation(report))


async def _transaction(call: Call) -> Request:
    """Its handle. A test key moves no real money: for it only its own transactions exist."""
    view = await view_of(call)
    if call.grant.is_test and not view.state.test:
        raise Problem(
            403, "test_key", "a test key moves money of test transactions only; use a live key"
        )
    return handle(call, view)


def _opened(request: Request, status: str) -> Answer:
    return Answer(Decided(request.id, request.flow, status), 202 if status == "queued" else 200)


_AMOUNT: dict[str, object] = {
    "amount": {"amount": "20.00", "currency": "EUR"},
    "key": "order-7-ship-1",
}
_Verb = tuple[str, Callable[[Call], Awaitable[Answer]], type[Asked], str, dict[str, object]]
_VERBS: tuple[_Verb, ...] = (
    ("capture", capture, Capture, "Capture an authorization", _AMOUNT),
    ("post", post_reservation, Capture, "Post a reservation", _AMOUNT),
    ("refund", refund, Refund, "Refund a capture", _AMOUNT),
    ("void", void, TakeBack, "Void an authorization", {}),
    ("reverse", reverse, TakeBack, "Reverse a transaction", {}),
)

ROUTES = [
    Route(
        "POST",
        "/v1/transactions/authorize",
        authorize,
        "submit",
        "Authorize a payment",
        "transactions",
        query=Wait,
        body=Authorize,
        answer=Submitted,
        status=202,
        problems=(200, 409),
        example={
            "payload": {
                "amount": {"amount": "49.90", "currency": "EUR"},
                "source": "pm_1",
                "gateway": "stripe-eu",
            },
            "key": "order-7",
        },
    ),
    Route(
        "GET",
        "/v1/transactions/{id}",
        show_transaction,
        "read",
        "Get the amounts of a transaction",
        "transactions",
        query=OfFlow,
        answer=TransactionRepresentation,
        problems=(404, 409),
    ),
    *(
        Route(
            "POST",
            f"{REQUEST_PATH}/{verb}",
            handler,
            "submit",
            summary,
            "transactions",
            query=OfFlow,
            body=body,
            answer=Decided,
            status=202,
            problems=(200, 403, 404, 409),
            example=example,
        )
        for verb, handler, body, summary, example in _VERBS
    ),
    Route(
        "POST",
        "/v1/reconciliations",
        reconcile,
        "operate",
        "Compare a gateway's ledger with the record",
        "transactions",
        body=Reconcile,
        answer=ReconciliationRepresentation,
        problems=(404, 503),
        example={
            "gateway": "stripe-eu",
            "from": "2027-01-01T00:00:00Z",
            "to": "2027-01-08T00:00:00Z",
        },
    ),
]
