"""/v1/requests: submit one or many requests, read their state, events and attempts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from gesta.admin.representations import (
    HistoryEntry,
    attempt_representations,
    event_representation,
    request_representation,
)
from gesta.admin.request_queries import Narrow, reasons_of
from gesta.api_types.bulk import Moment
from gesta.api_types.requests import (
    BATCH_MAX,
    WAIT_SECONDS_MAX,
    AttemptRepresentation,
    BatchResult,
    EventRepresentation,
    FlowName,
    RequestRepresentation,
    Submit,
    Submitted,
    SubmitVerdict,
    Whole,
)
from gesta.api_types.structs import PAGE_MAX, Asked, ListOf, ListOfReasons, OtherReason
from gesta.domain.events import Actor
from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID
from gesta.domain.lifecycles import Status
from gesta.engine.engine import Engine
from gesta.engine.request import Request
from gesta.errors import (
    BadCursor,
    Conflict,
    GestaError,
    InvalidRequest,
    OutcomeTimeout,
    PartlyAccepted,
    UnknownFlow,
)
from gesta.flows.channels import unknown_flow
from gesta.flows.flow import Payload
from gesta.flows.validation import decode_fields
from gesta.http_api.problem import Problem, invalid, problem_of
from gesta.http_api.reading import UNREADABLE, unreadable
from gesta.http_api.route import Answer, Call, Paging, Route
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import Options, option_errors
from gesta.ports.read_model import Filter, View

BATCH_BYTES_MAX = 8 * 1024 * 1024
REQUEST_PATH = "/v1/requests/{id}"
#: Options whose JSON name differs from the Python name.
_OPTIONS = {
    "deliver_at": "deliverAt",
    "ttl": "ttlSeconds",
    "correlation_id": "correlationId",
    "causation_id": "causationId",
}
_decode_submit = msgspec.json.Decoder(Submit).decode
_DURATION = re.compile(r"([0-9]{1,5})(ms|s)?")
#: The same with its bound, for the description.
_PATTERN = r"^(([1-5]?[0-9]|60)s?|([1-5]?[0-9]{1,4}|60000)ms)$"


class Batch(Asked, frozen=True):
    """Up to 1,000 requests, each with its own verdict."""

    requests: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=BATCH_MAX)]


class Listing(Paging, frozen=True):
    """Which requests to list: those that fit every parameter given.

    `since` and `until` limit when a request was created. `held`: only requests that wait because
    of a pause, or of a credential or config that is missing or refused. `test`: only test requests.
    """

    flow: FlowName | None = None
    status: Status | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_LENGTH_MAX)] | None = None
    reason: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    held: bool = False
    test: bool = False

    @property
    def narrow(self) -> Narrow:
        return Narrow(self.reason, _ms(self.since), _ms(self.until), self.held, self.test)


async def submit(call: Call) -> Answer:
    """Submit a request. 202: it is on disk and will be executed once. 200: an earlier request has
    this key and the same content.
    """
    asked: Submit = call.body
    payload, options = await read(call, asked, _key(call, asked.key), call.actor)
    try:
        request = Request(call.pipeline, await call.pipeline.intake.submit(payload, options))
    except InvalidRequest as error:
        raise invalid(_of_payload(error.fields)) from None
    shown = None
    seconds = wait_seconds(call.query.wait)
    if seconds:
        shown = await call.while_there(_after(call, request, seconds))
    verdict: SubmitVerdict = "created" if request.verdict == "created" else "duplicate"
    body = Submitted(request.id, request.flow, verdict, shown, request.warnings)
    return Answer(
        body,
        202 if verdict == "created" else 200,
        {"Location": f"{call.root}/v1/requests/{request.id}"},
    )


async def submit_batch(call: Call) -> Answer:
    """Submit up to 1,000 requests. Each one gets a verdict; an invalid one does not affect the
    others.
    """
    if call.header("idempotency-key") is not None:
        raise Problem(400, "key_of_a_batch", "a batch has no key; give each request its own key")
    raws: list[msgspec.Raw] = call.body.requests
    results: list[BatchResult | None] = [None] * len(raws)
    ready: list[tuple[Payload, Options]] = []
    places: list[int] = []
    actor = call.actor
    for place, raw in enumerate(raws):
        try:
            ready.append(await _read_one(call, raw, actor))
            places.append(place)
        except Problem as problem:
            results[place] = BatchResult("invalid", problem=problem.representation)
    if ready:
        await _accept(call, ready, places, results)
    return Answer(ListOf(items=[one for one in results if one is not None]))


async def _accept(
    call: Call,
    ready: list[tuple[Payload, Options]],
    places: list[int],
    results: list[BatchResult | None],
) -> None:
    """Submit the valid requests and set the verdict of each."""
    answers: Sequence[object]
    try:
        answers = await call.pipeline.intake.submit_each(ready)
    except PartlyAccepted as partly:
        answers = partly.answers
        problem = problem_of(partly.__cause__) if isinstance(partly.__cause__, GestaError) else None
        for place in places:
            results[place] = BatchResult(
                "not_written", problem=None if problem is None else problem.representation
            )
    for place, answer in zip(places, answers, strict=False):
        results[place] = _result(answer)


def _result(answer: object) -> BatchResult:
    if isinstance(answer, Accepted):
        return BatchResult(
            "created" if answer.verdict == "created" else "duplicate",
            answer.request_id,
            answer.flow,
            warnings=answer.warnings,
        )
    if isinstance(answer, InvalidRequest):
        return BatchResult(
            "invalid", flow=answer.flow, problem=invalid(_of_payload(answer.fields)).representation
        )
    assert isinstance(answer, Conflict)
    problem = problem_of(answer)
    return BatchResult(
        "conflict", answer.request_id, problem=None if problem is None else problem.representation
    )


async def show(call: Call) -> Answer:
    """The current state of a request, independent of view lag.

    With `wait`, the server answers when the request has ended, or after that time.
    """
    seconds = wait_seconds(call.query.wait)
    view = await view_of(call)
    if seconds:
        request = handle(call, view)
        await call.while_there(_ended(request, seconds))
        view = await request.view()
    (pause,) = await call.engine.admin.pauses_of([view])
    fields = msgspec.structs.asdict(request_representation(view.state, pause))
    return Answer(Whole(**fields, payload=await call.engine.admin.shown_payload(view)))


async def listing(call: Call) -> Answer:
    """The tenant's requests, newest first; those with an id of the caller are sorted by that id.

    The list may lag by some milliseconds. A search by key, and a request read by its id, never lag.
    With `reason`, `since`, `until`, `held` or `test` a page may be short or empty before the end:
    the list ends where `next` is null. If no request has this `reason`, `others` says which
    reasons there are.
    """
    asked: Listing = call.query

    async def find(chosen: Filter) -> list[View]:
        return await call.engine.find(
            tenant=chosen.tenant,
            flow=chosen.flow,
            status=chosen.status,
            key=asked.key,
            before_id=chosen.before_id,
            limit=chosen.limit,
        )

    chosen = Filter(call.tenant, asked.flow, asked.status, before_id(asked), asked.limit)
    if asked.narrow == Narrow():
        views = await find(msgspec.structs.replace(chosen, limit=asked.limit + 1))
        page = views[: asked.limit]
        following = page[-1].state.id if len(views) > asked.limit else None
    else:
        found = await call.engine.admin.request_page(find, chosen, asked.narrow)
        page, following = found.items, found.next
    pauses = await call.engine.admin.pauses_of(page)
    items = [
        request_representation(view.state, pause) for view, pause in zip(page, pauses, strict=True)
    ]
    others: list[OtherReason] | msgspec.UnsetType = msgspec.UNSET
    if not items and asked.cursor is None and asked.reason is not None:
        wide, narrow = (
            msgspec.structs.replace(chosen, limit=PAGE_MAX),
            msgspec.structs.replace(asked.narrow, reason=None),
        )
        found = await call.engine.admin.request_page(find, wide, narrow)
        others = reasons_of(view.state for view in found.items)
    return Answer(ListOfReasons(items=items, next=following, others=others or msgspec.UNSET))


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def before_id(asked: Paging) -> str | None:
    """The id that the cursor is; raises BadCursor."""
    if asked.cursor is not None and not REQUEST_ID.fullmatch(asked.cursor):
        raise BadCursor
    return asked.cursor


async def timeline(call: Call) -> Answer:
    """Every event of a request, oldest first, even if this process does not declare its flow."""
    history = await _history(call)
    items = [event_representation(one, version) for version, one in enumerate(history, start=1)]
    return Answer(ListOf(items=items))


async def attempts(call: Call) -> Answer:
    """Every attempt of a request, oldest first."""
    return Answer(ListOf(items=attempt_representations(await _history(call))))


async def _history(call: Call) -> list[HistoryEntry]:
    state = (await view_of(call)).state
    return await call.engine.history(state.id, flow=state.flow, tenant=call.tenant)


async def view_of(call: Call) -> View:
    """The request that the path names. Raises NotFound and AmbiguousId."""
    return await call.engine.admin.look_up(call.params["id"], call.tenant, flow=call.query.flow)


async def handle_of(call: Call) -> Request:
    return handle(call, await view_of(call))


def handle(call: Call, view: View) -> Request:
    state = view.state
    return Request(call.pipeline, Accepted(state.flow, state.tenant, state.id, "duplicate"))


async def _after(call: Call, request: Request, seconds: float) -> RequestRepresentation:
    await _ended(request, seconds)
    view = await request.view()
    (pause,) = await call.engine.admin.pauses_of([view])
    return request_representation(view.state, pause)


async def _ended(request: Request, seconds: float) -> None:
    try:
        await request.outcome(timeout=seconds)
    except OutcomeTimeout:
        return


def _key(call: Call, in_body: str | None) -> str | None:
    in_header = call.header("idempotency-key")
    if in_header is None:
        return in_body
    if in_body is not None and in_body != in_header:
        raise invalid({"key": "differs from the header Idempotency-Key; send only one of them"})
    if not in_header:
        raise invalid({"Idempotency-Key": "is empty"})
    return in_header


async def _read_one(call: Call, raw: msgspec.Raw, actor: Actor) -> tuple[Payload, Options]:
    try:
        asked = _decode_submit(raw)
    except UNREADABLE:
        raise await _problem_of_one(call.engine, call.tenant, raw) from None
    return await read(call, asked, asked.key, actor)


async def _problem_of_one(engine: Engine, tenant: str, raw: msgspec.Raw) -> Problem:
    try:
        given = msgspec.json.decode(raw)
    except UNREADABLE as error:
        # Strings and numbers of the parts of a batch are not checked before.
        return unreadable(error, raw)
    if not isinstance(given, dict):
        return invalid({"request": "must be a JSON object"})
    return invalid(
        {**decode_fields(Submit, given)[1], **await errors_beside(engine, tenant, {}, given)}
    )


async def read(call: Call, asked: Submit, key: str | None, actor: Actor) -> tuple[Payload, Options]:
    """The payload as the flow's type, and the options; raises all errors of both at once."""
    grant = call.grant
    options = Options(
        key=key,
        tenant=grant.tenant,
        deliver_at=asked.deliver_at,
        ttl=None if asked.ttl_seconds is None else timedelta(seconds=asked.ttl_seconds),
        priority=asked.priority,
        correlation_id=asked.correlation_id,
        causation_id=asked.causation_id,
        actor=actor,
        test=grant.is_test,
    )
    try:
        flow = call.web.engine.flow(asked.flow)
    except UnknownFlow as error:
        raise invalid({"flow": str(error)}) from None
    payload, errors = decode_fields(flow.payload, asked.payload)
    invalid_options = option_errors(options)
    if payload is None or invalid_options:
        if payload is not None:
            errors = await call.pipeline.intake.errors(payload, grant.tenant)
        raise invalid(
            _of_payload(errors)
            | {_OPTIONS.get(name, name): error for name, error in invalid_options.items()}
        )
    return payload, options


def _of_payload(errors: Any) -> dict[str, str]:
    return {
        name if name in ("payload", "key", "test") else f"payload.{name}": error
        for name, error in errors.items()
    }


async def errors_beside(
    engine: Engine, tenant: str, _path: Mapping[str, str], given: dict[str, Any]
) -> dict[str, str]:
    """All other errors of a body that is not a valid Submit: flow, payload, key and ids."""
    key, correlation_id, causation_id = (
        text if isinstance(text := given.get(name), str) else None
        for name in ("key", "correlationId", "causationId")
    )
    said = Options(key, correlation_id=correlation_id, causation_id=causation_id)
    errors = {_OPTIONS.get(name, name): error for name, error in option_errors(said).items()}
    name, payload = given.get("flow"), given.get("payload")
    if not isinstance(name, str):
        return errors
    if name not in engine.flows:
        return errors | {"flow": str(unknown_flow(name, engine.flows))}
    if not isinstance(payload, dict):
        return errors
    value, invalid_options = decode_fields(engine.flows[name].payload, payload)
    return errors | _of_payload(
        invalid_options if value is None else await engine.pipeline.intake.errors(value, tenant)
    )


class Wait(Asked, frozen=True):
    wait: (
        Annotated[str, msgspec.Meta(extra_json_schema={"pattern": _PATTERN, "examples": ["20s"]})]
        | None
    ) = None


class OfFlow(Asked, frozen=True):
    #: Needed only where several flows have a request with this id.
    flow: FlowName | None = None


class Shown(Wait, frozen=True):
    flow: FlowName | None = None


def wait_seconds(text: str | None) -> float:
    """The seconds of a text like `20s`, at most 60; 0 without a text."""
    if text is None:
        return 0.0
    match = _DURATION.fullmatch(text)
    if match is None:
        raise invalid({"wait": "write it like 20s or 500ms; at most 60s"})
    number = int(match[1])
    seconds = number / 1000 if match[2] == "ms" else float(number)
    if seconds > WAIT_SECONDS_MAX:
        raise invalid({"wait": f"at most {WAIT_SECONDS_MAX:g}s"})
    return seconds


ROUTES = [
    Route(
        "POST",
        "/v1/requests",
        submit,
        "submit",
        "Submit a request",
        "requests",
        query=Wait,
        body=Submit,
        also=errors_beside,
        answer=Submitted,
        status=202,
        problems=(200, 409),
        headers={"Idempotency-Key": "The key of the request, instead of `key` in the body"},
    ),
    Route(
        "POST",
        "/v1/requests/batch",
        submit_batch,
        "submit",
        "Submit up to 1,000 requests",
        "requests",
        body=Batch,
        answer=ListOf[BatchResult],
        object_hint='send {"requests": […]}',
        body_bytes_max=BATCH_BYTES_MAX,
        weighs=lambda body: len(body.requests),
    ),
    Route(
        "GET",
        "/v1/requests",
        listing,
        "read",
        "List requests",
        "requests",
        query=Listing,
        answer=ListOfReasons[RequestRepresentation],
    ),
    Route(
        "GET",
        REQUEST_PATH,
        show,
        "read",
        "Get a request",
        "requests",
        query=Shown,
        answer=Whole,
        problems=(404, 409),
    ),
    Route(
        "GET",
        f"{REQUEST_PATH}/events",
        timeline,
        "read",
        "List the events of a request",
        "requests",
        query=OfFlow,
        answer=ListOf[EventRepresentation],
        problems=(404, 409),
    ),
    Route(
        "GET",
        f"{REQUEST_PATH}/attempts",
        attempts,
        "read",
        "List the attempts of a request",
        "requests",
        query=OfFlow,
        answer=ListOf[AttemptRepresentation],
        problems=(404, 409),
    ),
]
