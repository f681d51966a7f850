"""Operator decisions: cancel, retry, redrive, resolve; dead letters and unknown outcomes.

Each decision is an event that names the actor.
"""

from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from gesta.admin.representations import request_representation
from gesta.api_types.decisions import DeadLetter, UnknownOutcome
from gesta.api_types.requests import Decided, FlowName, TtlSeconds
from gesta.api_types.structs import Asked, ListOf, ListOfReasons, OtherReason
from gesta.domain.durations import iso
from gesta.domain.lifecycles import Status
from gesta.domain.money import Money
from gesta.domain.state import State
from gesta.engine.request import Request
from gesta.http_api.requests import REQUEST_PATH, OfFlow, before_id, handle_of
from gesta.http_api.route import Answer, Call, Paging, Route

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
_DEAD_LETTERS = "/v1/dead-letters/{id}"


class Redrive(Asked, frozen=True):
    """Execute a request again after a final failure.

    `again` forces a new intent although the outcome of an attempt is unknown: the effect may happen
    twice.
    """

    ttl_seconds: TtlSeconds | None = None
    again: bool = False


class Resolve(Asked, frozen=True):
    """What happened to a request whose outcome is unknown.

    `evidence` says how the caller knows; it is recorded. `id` is the provider's id of the effect.
    `amount` is what a transaction has moved, if that is not what was asked for.
    """

    outcome: Literal["succeeded", "not_executed", "failed"]
    evidence: Text
    id: Annotated[str, msgspec.Meta(max_length=500)] | None = None
    amount: Money | None = None


#: Outcome in the API → result in the event.
_RESULTS: dict[str, Literal["executed", "not_executed", "rejected"]] = {
    "succeeded": "executed",
    "not_executed": "not_executed",
    "failed": "rejected",
}


async def cancel(call: Call) -> Answer:
    """Cancel a request.

    A running attempt finishes first; if it succeeds, the request stays `sent`, otherwise it becomes
    `cancelled`.
    """
    request = await handle_of(call)
    return await _decided(call, request, await request.cancel(actor=call.actor))


async def retry(call: Call) -> Answer:
    """Make the next attempt due now, with the same idempotency key."""
    request = await handle_of(call)
    return await _decided(call, request, await request.retry(actor=call.actor))


async def redrive(call: Call) -> Answer:
    """Execute a request again after a final failure, with a new budget of attempts."""
    request, asked = await handle_of(call), call.body
    status = await request.redrive(ttl=_ttl(asked.ttl_seconds), again=asked.again, actor=call.actor)
    return await _decided(call, request, status)


async def resolve(call: Call) -> Answer:
    """Record what happened to a request whose outcome is unknown.

    With `not_executed` it is executed again, with a new budget of attempts.
    """
    request, asked = await handle_of(call), call.body
    status = await request.resolve(
        _RESULTS[asked.outcome],
        by=call.actor.user_id,
        evidence=asked.evidence,
        provider_id=asked.id or "",
        amount=asked.amount,
        actor=call.actor,
    )
    return await _decided(call, request, status)


async def _decided(call: Call, request: Request, status: Status) -> Answer:
    (pause,) = await call.engine.admin.pauses_of([await request.view()])
    held_by = None if pause is None else pause.held_by
    return Answer(Decided(request.id, request.flow, status, held_by))


class Choice(Paging, frozen=True):
    flow: FlowName | None = None
    reason: str | None = None


async def list_dead_letters(call: Call) -> Answer:
    """Requests that failed permanently, newest first.

    If there are none of this flow or reason, `others` says which flows and reasons there are.
    """
    asked: Choice = call.query
    page = await call.engine.admin.dead_letter_page(
        call.tenant,
        asked.flow,
        reason=asked.reason,
        before_id=before_id(asked),
        limit=asked.limit,
    )
    others: list[OtherReason] | msgspec.UnsetType = msgspec.UNSET
    if not page.items and asked.cursor is None and (asked.flow or asked.reason):
        others = await call.engine.admin.dead_letter_reasons(call.tenant, asked.flow)
    return Answer(ListOfReasons(items=page.items, next=page.next, others=others or msgspec.UNSET))


async def get_dead_letter(call: Call) -> Answer:
    """A request with the reason of its failure and the end of its retention."""
    return Answer(await _letter(call))


async def purge_dead_letter(call: Call) -> Answer:
    """Remove a request from the dead letters; its events stay."""
    await call.engine.admin.request(await _letter(call)).purge(actor=call.actor)
    return Answer(status=204)


async def _letter(call: Call) -> DeadLetter:
    return await call.engine.admin.dead_letter(call.params["id"], call.tenant, flow=call.query.flow)


def _ttl(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


class UnknownChoice(Paging, frozen=True):
    flow: FlowName | None = None


async def list_unknown(call: Call) -> Answer:
    """Requests whose unknown outcome a person has to resolve, newest first."""
    asked: UnknownChoice = call.query
    page = await call.engine.admin.undecided_page(
        call.tenant, asked.flow, before_id=before_id(asked), limit=asked.limit
    )
    now = call.pipeline.runtime.now_ms()
    items = [_unknown(state, now) for state in page.items]
    return Answer(ListOf(items=items, next=page.next))


def _unknown(state: State, now_ms: int) -> UnknownOutcome:
    return UnknownOutcome(
        **msgspec.structs.asdict(request_representation(state)),
        since=iso(state.updated_at),
        age_seconds=max(0, now_ms - state.updated_at) // 1000,
    )


ROUTES = [
    Route(
        "POST",
        f"{REQUEST_PATH}/cancel",
        cancel,
        "operate",
        "Cancel a request",
        "decisions",
        query=OfFlow,
        answer=Decided,
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{REQUEST_PATH}/retry",
        retry,
        "operate",
        "Retry a request now",
        "decisions",
        query=OfFlow,
        answer=Decided,
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{REQUEST_PATH}/redrive",
        redrive,
        "operate",
        "Redrive a request",
        "decisions",
        query=OfFlow,
        body=Redrive,
        answer=Decided,
        problems=(404, 409),
        example={},
    ),
    Route(
        "POST",
        f"{REQUEST_PATH}/resolve",
        resolve,
        "operate",
        "Resolve an unknown outcome",
        "decisions",
        query=OfFlow,
        body=Resolve,
        answer=Decided,
        problems=(404, 409),
        example={"outcome": "succeeded", "evidence": "the receiver's log of 12:04"},
    ),
    Route(
        "GET",
        "/v1/dead-letters",
        list_dead_letters,
        "read",
        "List dead letters",
        "dead letters",
        query=Choice,
        answer=ListOfReasons[DeadLetter],
    ),
    Route(
        "GET",
        _DEAD_LETTERS,
        get_dead_letter,
        "read",
        "Get a dead letter",
        "dead letters",
        query=OfFlow,
        answer=DeadLetter,
        problems=(404, 409),
    ),
    Route(
        "DELETE",
        _DEAD_LETTERS,
        purge_dead_letter,
        "operate",
        "Purge a dead letter",
        "dead letters",
        query=OfFlow,
        status=204,
        problems=(404, 409),
    ),
    Route(
        "GET",
        "/v1/unknown",
        list_unknown,
        "read",
        "List unknown outcomes",
        "decisions",
        query=UnknownChoice,
        answer=ListOf[UnknownOutcome],
    ),
]
