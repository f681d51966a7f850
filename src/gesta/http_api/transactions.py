"""Transactions: authorize, capture, post, void, refund, reverse; their amounts."""

from collections.abc import Awaitable, Callable

from gesta.admin.transactions import transaction_representation
from gesta.api_types.requests import Decided, Submit, Submitted
from gesta.api_types.structs import Asked
from gesta.api_types.transactions import (
    Authorize,
    Capture,
    Refund,
    TakeBack,
    TransactionRepresentation,
)
from gesta.engine.request import Request
from gesta.http_api.problem import Problem
from gesta.http_api.requests import REQUEST_PATH, OfFlow, Wait, handle, submit, view_of
from gesta.http_api.route import Answer, Call, Route

_FIRST = {"payment.transfer": "reserve"}


async def authorize(call: Call) -> Answer:
    """Reserve an amount; a capture takes it later. The answer is that of a submit."""
    asked: Authorize = call.body
    operation = _FIRST.get(asked.flow, "authorize")
    call.body = Submit(asked.flow, {**asked.payload, "operation": operation}, asked.key)
    return await submit(call)


async def show_transaction(call: Call) -> Answer:
    """The amounts of a transaction: authorized, captured, refunded, unknown."""
    return Answer(transaction_representation((await view_of(call)).state))


async def capture(call: Call) -> Answer:
    """Take part or all of what was authorized."""
    request, asked = await _transaction(call), call.body
    status = await request.capture(asked.amount, key=asked.key, final=asked.final, actor=call.actor)
    return _opened(request, status)


async def post_reservation(call: Call) -> Answer:
    """Transfer part or all of what was reserved."""
    request, asked = await _transaction(call), call.body
    status = await request.post(asked.amount, key=asked.key, final=asked.final, actor=call.actor)
    return _opened(request, status)


async def refund(call: Call) -> Answer:
    """Give part or all of what was captured back."""
    request, asked = await _transaction(call), call.body
    status = await request.refund(asked.amount, key=asked.key, actor=call.actor)
    return _opened(request, status)


async def void(call: Call) -> Answer:
    """Release what was authorized and not captured."""
    request, asked = await _transaction(call), call.body
    return _opened(request, await request.void(key=asked.key, actor=call.actor))


async def reverse(call: Call) -> Answer:
    """Take a transaction back: void it, or refund it where it was captured."""
    request, asked = await _transaction(call), call.body
    return _opened(request, await request.reverse(key=asked.key, actor=call.actor))


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
]
