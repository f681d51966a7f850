"""/v1/requests: ask for something, one or many; see what became of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gesta.admin.representations import (
    HistoryEntry,
    attempt_representations,
    event_representation,
    request_representation,
)
from gesta.api_types.requests import (
    BATCH_MAX,
    WAIT_SECONDS_MAX,
    Attempts,
    BatchResult,
    FlowName,
    Page,
    RequestRepresentation,
    Results,
    Submit,
    Submitted,
    SubmitVerdict,
    Timeline,
    Whole,
)
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.domain.events import Actor
from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID
from gesta.domain.lifecycles import Status
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
from gesta.http_api.route import Answer, Call, Route
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import Options, option_errors

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.ports.read_model import View

BATCH_BYTES_MAX = 8 * 1024 * 1024
REQUEST_PATH = "/v1/requests/{id}"
#: What an option is called in Python → in JSON.
_OPTIONS = {
    "deliver_at": "deliverAt",
    "ttl": "ttlSeconds",
    "correlation_id": "correlationId",
    "causation_id": "causationId",
}
_decode_submit = msgspec.json.Decoder(Submit).decode
_DURATION = re.compile(r"([0-9]{1,5})(ms|s)?")
#: The same with its bound, for those who read about it.
_PATTERN = r"^(([1-5]?[0-9]|60)s?|([1-5]?[0-9]{1,4}|60000)ms)$"


class Batch(Asked, frozen=True):
    """Many requests, each of which gets its own verdict."""

    requests: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=BATCH_MAX)]


class Listing(Asked, frozen=True):
    flow: FlowName | None = None
    status: Status | None = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_LENGTH_MAX)] | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


async def submit(call: Call) -> Answer:
    """Ask for one side effect. 202: it is on disk and will be done once. 200: this key was here
    before with the same content.
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
    """Ask for up to 1,000 at once; each gets a verdict, and one that is wrong keeps no other from
    being accepted.
    """
    if call.header("idempotency-key") is not None:
        raise Problem(400, "key_of_a_batch", "a batch has no key of its own; give each request one")
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
    return Answer(Results(items=[one for one in results if one is not None]))


async def _accept(
    call: Call,
    ready: list[tuple[Payload, Options]],
    places: list[int],
    results: list[BatchResult | None],
) -> None:
    """Submit what can be read, and put each verdict in its place."""
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

    With `wait` the answer comes when the request has ended, or after that time.
    """
    seconds = wait_seconds(call.query.wait)
    view = await view_of(call)
    if seconds:
        request = _handle(call, view)
        await call.while_there(_ended(request, seconds))
        view = await request.view()
    (pause,) = await call.engine.admin.pauses_of([view])
    fields = msgspec.structs.asdict(request_representation(view.state, pause))
    return Answer(Whole(**fields, payload=await call.engine.admin.shown_payload(view)))


async def listing(call: Call) -> Answer:
    """The tenant's requests, newest first.

    They may lag some milliseconds behind; a request that is asked for by its id or key never does.
    """
    asked: Listing = call.query
    if asked.cursor is not None and not REQUEST_ID.fullmatch(asked.cursor):
        raise BadCursor
    views = await call.engine.find(
        tenant=call.tenant,
        flow=asked.flow,
        status=asked.status,
        key=asked.key,
        before_id=asked.cursor,
        limit=asked.limit + 1,
    )
    page = views[: asked.limit]
    pauses = await call.engine.admin.pauses_of(page)
    items = [
        request_representation(view.state, pause) for view, pause in zip(page, pauses, strict=True)
    ]
    following = page[-1].state.id if len(views) > asked.limit else None
    return Answer(Page(items=items, next=following))


async def timeline(call: Call) -> Answer:
    """Every event of a request, in order, also of a flow that this process does not declare."""
    history = await _history(call)
    items = [event_representation(one, version) for version, one in enumerate(history, start=1)]
    return Answer(Timeline(items=items))


async def attempts(call: Call) -> Answer:
    """What each attempt came to."""
    return Answer(Attempts(items=attempt_representations(await _history(call))))


async def _history(call: Call) -> list[HistoryEntry]:
    state = (await view_of(call)).state
    return await call.engine.history(state.id, flow=state.flow, tenant=call.tenant)


async def view_of(call: Call) -> View:
    """The request that the path names. Raises NotFound and AmbiguousId."""
    return await call.engine.admin.look_up(call.params["id"], call.tenant, flow=call.query.flow)


async def handle_of(call: Call) -> Request:
    """The same as a handle, for commands."""
    return _handle(call, await view_of(call))


def _handle(call: Call, view: View) -> Request:
    state = view.state
    return Request(call.pipeline, Accepted(state.flow, state.tenant, state.id, "duplicate"))


async def _after(call: Call, request: Request, seconds: float) -> RequestRepresentation:
    await _ended(request, seconds)
    view = await request.view()
    (pause,) = await call.engine.admin.pauses_of([view])
    return request_representation(view.state, pause)


async def _ended(request: Request, seconds: float) -> None:
    """Wait for the end, for so long."""
    try:
        await request.outcome(timeout=seconds)
    except OutcomeTimeout:
        return


def _key(call: Call, in_body: str | None) -> str | None:
    in_header = call.header("idempotency-key")
    if in_header is None:
        return in_body
    if in_body is not None and in_body != in_header:
        raise invalid({"key": "differs from the header Idempotency-Key; send one of the two"})
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
    """What is wrong with one request of a batch."""
    try:
        given = msgspec.json.decode(raw)
    except UNREADABLE as error:
        # A batch was read without a look into its strings and numbers.
        return unreadable(error, raw)
    if not isinstance(given, dict):
        return invalid({"request": "must be a JSON object"})
    return invalid(
        {**decode_fields(Submit, given)[1], **await faults_beside(engine, tenant, {}, given)}
    )


async def read(call: Call, asked: Submit, key: str | None, actor: Actor) -> tuple[Payload, Options]:
    """What was asked, of the flow's own type; raises with every fault of payload and options at
    once.

    Only a payload of its type can be checked.
    """
    grant = call.grant
    options = Options(
        key,
        grant.tenant,
        asked.deliver_at,
        None if asked.ttl_seconds is None else timedelta(seconds=asked.ttl_seconds),
        asked.priority,
        asked.correlation_id,
        asked.causation_id,
        actor,
        grant.is_test,
    )
    try:
        flow = call.web.engine.flow(asked.flow)
    except UnknownFlow as error:
        raise invalid({"flow": str(error)}) from None
    payload, faults = decode_fields(flow.payload, asked.payload)
    wrong = option_errors(options)
    if payload is None or wrong:
        if payload is not None:
            faults = await call.pipeline.intake.errors(payload, grant.tenant)
        raise invalid(
            _of_payload(faults) | {_OPTIONS.get(name, name): fault for name, fault in wrong.items()}
        )
    return payload, options


def _of_payload(faults: Any) -> dict[str, str]:
    return {
        name if name in ("payload", "key", "test") else f"payload.{name}": fault
        for name, fault in faults.items()
    }


async def faults_beside(
    engine: Engine, tenant: str, _path: Mapping[str, str], given: dict[str, Any]
) -> dict[str, str]:
    """What else is wrong with a body that does not fit its type: flow, payload, key and ids.

    Nobody has to mend one after the other.
    """
    key, correlation_id, causation_id = (
        text if isinstance(text := given.get(name), str) else None
        for name in ("key", "correlationId", "causationId")
    )
    said = Options(key, correlation_id=correlation_id, causation_id=causation_id)
    faults = {_OPTIONS.get(name, name): fault for name, fault in option_errors(said).items()}
    name, payload = given.get("flow"), given.get("payload")
    if not isinstance(name, str):
        return faults
    if name not in engine.flows:
        return faults | {"flow": str(unknown_flow(name, engine.flows))}
    if not isinstance(payload, dict):
        return faults
    value, wrong = decode_fields(engine.flows[name].payload, payload)
    return faults | _of_payload(
        wrong if value is None else await engine.pipeline.intake.errors(value, tenant)
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
    """The seconds that the text tells, at most 60; 0 for none."""
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
        "Ask for one side effect",
        "requests",
        query=Wait,
        body=Submit,
        also=faults_beside,
        answer=Submitted,
        status=202,
        problems=(200, 409),
        headers={"Idempotency-Key": "The request's key, unless the body has one"},
    ),
    Route(
        "POST",
        "/v1/requests/batch",
        submit_batch,
        "submit",
        "Ask for up to 1,000 at once",
        "requests",
        body=Batch,
        answer=Results,
        object_hint='send {"requests": […]}',
        body_bytes_max=BATCH_BYTES_MAX,
        weighs=lambda body: len(body.requests),
    ),
    Route(
        "GET",
        "/v1/requests",
        listing,
        "read",
        "List requests, newest first",
        "requests",
        query=Listing,
        answer=Page,
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
        answer=Timeline,
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
        answer=Attempts,
        problems=(404, 409),
    ),
]
