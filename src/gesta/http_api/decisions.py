"""/v1/requests/{flow}/{id}/…: what can still be decided about a request.

Each decision is an event that says who took it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from gesta.api_types.requests import Decided, TtlSeconds
from gesta.api_types.structs import Asked
from gesta.domain.lifecycles import Status
from gesta.http_api.requests import handle_of
from gesta.http_api.route import Answer, Call, Route

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]


class Redrive(Asked, frozen=True):
    """Again after a final failure.

    `again` forces a new intent although an attempt is in doubt: it may be done twice then.
    """

    ttl_seconds: TtlSeconds | None = None
    again: bool = False


class Resolve(Asked, frozen=True):
    """A person's word about an unknown outcome.

    `evidence` is for the record: what was looked at, and where.
    """

    result: Literal["executed", "not_executed", "rejected"]
    evidence: Text
    by: Text | None = None
    provider_id: Annotated[str, msgspec.Meta(max_length=500)] = ""


async def cancel(call: Call) -> Answer:
    """Call it back.

    While an attempt runs, its end decides: a success stays, anything else becomes `cancelled`.
    """
    request = await handle_of(call)
    return _decided(call, await request.cancel(actor=call.actor))


async def retry(call: Call) -> Answer:
    """The next attempt of the same intent, due now, under the same key."""
    request = await handle_of(call)
    return _decided(call, await request.retry(actor=call.actor))


async def redrive(call: Call) -> Answer:
    """Again after a final failure, with a fresh budget."""
    request, asked = await handle_of(call), call.body
    ttl = None if asked.ttl_seconds is None else timedelta(seconds=asked.ttl_seconds)
    return _decided(call, await request.redrive(ttl=ttl, again=asked.again, actor=call.actor))


async def resolve(call: Call) -> Answer:
    """End the doubt of an unknown outcome by a person's word, on record."""
    request, asked = await handle_of(call), call.body
    status = await request.resolve(
        asked.result,
        by=asked.by or call.actor.user_id,
        evidence=asked.evidence,
        provider_id=asked.provider_id,
        actor=call.actor,
    )
    return _decided(call, status)


def _decided(call: Call, status: Status) -> Answer:
    return Answer(Decided(call.params["id"], call.params["flow"], status))


_HERE = "/v1/requests/{flow}/{id}"
ROUTES = [
    Route(
        "POST",
        f"{_HERE}/cancel",
        cancel,
        "operate",
        "Call a request back",
        "decisions",
        answer=Decided,
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{_HERE}/retry",
        retry,
        "operate",
        "The next attempt now",
        "decisions",
        answer=Decided,
        problems=(404, 409),
    ),
    Route(
        "POST",
        f"{_HERE}/redrive",
        redrive,
        "operate",
        "Again after a final failure",
        "decisions",
        body=Redrive,
        answer=Decided,
        problems=(404, 409),
        example={},
    ),
    Route(
        "POST",
        f"{_HERE}/resolve",
        resolve,
        "operate",
        "End the doubt of an unknown outcome",
        "decisions",
        body=Resolve,
        answer=Decided,
        problems=(404, 409),
        example={"result": "executed", "evidence": "the receiver's log of 12:04"},
    ),
]
