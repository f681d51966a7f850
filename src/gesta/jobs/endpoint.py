"""One endpoint: its flow, the executor around the handler, and the results of its jobs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import msgspec

from gesta.domain.commands import Rules
from gesta.domain.outcome import Done, Outcome, Rejected, Retry, UnknownPolicy
from gesta.domain.retry_policy import RetryPolicy
from gesta.domain.stored_job import StoredJob
from gesta.errors import BadFlow, Erased
from gesta.flows.attempt import Attempt
from gesta.flows.flow import Flow
from gesta.jobs.answers import JobProblem, of_program
from gesta.jobs.call import CALL_BYTES_MAX, EndpointCall, PersonalCall, checked_headers
from gesta.jobs.outcomes import JobFailed, TryAgain

#: The largest result, in bytes.
RESULT_BYTES_MAX = 1_048_576
#: The longest wait between two attempts. The waits have full jitter.
BASE_SECONDS, CAP_SECONDS = 2.0, 300.0

#: (the stored call) → the handler's return value.
Handler = Callable[[EndpointCall], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """How the jobs of an endpoint are executed."""

    #: What follows an attempt with an unknown outcome: the handler raised, exceeded its time limit,
    #: or its process died. `resend`: the handler runs again. `manual`: a person decides.
    on_unknown: UnknownPolicy
    max_retries: int = 3
    timeout_seconds: float = 1_800.0
    #: Jobs that run at the same time in one process.
    concurrency: int = 10
    #: The body of a call, for a handler that takes the request itself. None: JSON, or no body.
    #: `json`: JSON, and a call without a body is refused. `text`: any text.
    body: Literal["json", "text"] | None = None
    #: Names of headers that are stored and given to the handler. None by default.
    headers: Iterable[str] = ()
    #: (the call) → the person it is about. Erasing that person erases the call and its result.
    subject: Callable[[EndpointCall], str] | None = None
    #: (the call) → 1, most urgent, to 10; among the jobs of this endpoint and tenant.
    priority: Callable[[EndpointCall], int] | None = None


@dataclass(frozen=True)
class Endpoint:
    name: str
    flow: Flow
    call_type: type[EndpointCall]
    options: EndpointOptions
    headers: frozenset[str]
    #: The handler's arguments from a job that another service created. Raises ValueError.
    arguments: Callable[[StoredJob], dict[str, Any]]
    #: Whether the handler takes the request itself, and so the body.
    takes_body: bool

    @property
    def is_personal(self) -> bool:
        return self.options.subject is not None

    def call(self, **fields: Any) -> EndpointCall:
        """Raises JobProblem if it cannot be stored, or the handler could not read its body."""
        call = self.call_type(**fields)
        check_storable(call)
        if self.takes_body:
            check_body(call.body, self.options.body)
        if self.options.subject is None:
            return call
        subject = of_program(f"subject= of the endpoint {self.name}", self.options.subject, call)
        if not isinstance(subject, str) or not subject:
            # Without a person the call and its result could not be encrypted.
            raise JobProblem(400, "no_subject", "The call does not name the person it is about")
        return msgspec.structs.replace(call, subject=subject)

    def priority(self, call: EndpointCall) -> int:
        if self.options.priority is None:
            return 5
        return of_program(f"priority= of the endpoint {self.name}", self.options.priority, call)


def check_storable(call: EndpointCall) -> None:
    """Raises JobProblem for a call that is too large or not JSON."""
    try:
        # JSON has no NaN and no Infinity, which msgspec would write as null.
        json.dumps(call.arguments, allow_nan=False)
        size = len(msgspec.json.encode(call))
    except (ValueError, TypeError, OverflowError, RecursionError):
        text = "The call has a text that is not valid Unicode, or a number that JSON cannot express"
        raise JobProblem(400, "bad_call", text) from None
    if size > CALL_BYTES_MAX:
        text = f"The call has {size:,} bytes, and {CALL_BYTES_MAX:,} is the maximum"
        raise JobProblem(413, "too_large", text)


def check_body(body: str, expected: Literal["json", "text"] | None) -> None:
    """Raises JobProblem for a body that is not what the endpoint declares."""
    if expected == "text" or (expected is None and not body):
        return
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise JobProblem(400, "bad_body", "The body must be JSON") from None


def endpoint_of(
    name: str,
    handler: Handler,
    arguments: Callable[[StoredJob], dict[str, Any]],
    options: EndpointOptions,
    *,
    encode: Callable[[Any], bytes],
    takes_body: bool,
) -> Endpoint:
    """`encode` makes JSON of a result. Raises BadFlow for invalid options."""
    if options.body not in (None, "json", "text"):
        raise BadFlow(name, "body must be 'json' (required) or 'text'; without it: JSON, or none")
    if options.body is not None and not takes_body:
        raise BadFlow(name, "body= is only for a handler that takes the request; this one does not")
    if options.on_unknown not in ("resend", "manual"):
        raise BadFlow(name, "on_unknown must be 'resend' (run the handler again) or 'manual'")
    call: type[EndpointCall] = msgspec.defstruct(  # type: ignore[assignment]
        f"Call_{name.replace('.', '_')}",
        [],
        bases=(EndpointCall if options.subject is None else PersonalCall,),
        frozen=True,
    )
    retry = RetryPolicy(
        attempts=options.max_retries + 1, base_seconds=BASE_SECONDS, cap_seconds=CAP_SECONDS
    )

    async def execute(payload: EndpointCall, attempt: Attempt) -> Outcome:
        try:
            value = await handler(payload)
        except JobFailed as failed:
            return Rejected(failed.code, failed.message)
        except TryAgain as again:
            return Retry(again.code, again.message, again.after_seconds)
        return await _keep(value, encode, payload, attempt)

    flow = Flow(
        name,
        call,
        execute,
        # A handler that may run again may also be left unfinished.
        Rules(retry, options.on_unknown, cancels_unknown=options.on_unknown == "resend"),
        timeout_seconds=options.timeout_seconds,
        concurrency=options.concurrency,
        # The start of an attempt is recorded, so that clients see InProgress.
        journal=True,
        request_id=lambda payload: payload.id,
        reasons=frozenset({"BAD_ARGUMENTS", "RESULT_NOT_STORABLE", "RESULT_TOO_LARGE"}),
    )
    return Endpoint(
        name=name,
        flow=flow,
        call_type=call,
        options=options,
        headers=checked_headers(name, options.headers),
        arguments=arguments,
        takes_body=takes_body,
    )


async def _keep(
    value: Any, encode: Callable[[Any], bytes], call: EndpointCall, attempt: Attempt
) -> Outcome:
    """Store the result before the outcome is recorded, so that a completed job always has its
    result.
    """
    if value is None:
        return Done()
    try:
        result = encode(value)
    except Exception as error:  # noqa: BLE001 -- types of any library
        text = f"{type(value).__name__} cannot be JSON: {type(error).__name__}"
        return Rejected("RESULT_NOT_STORABLE", text)
    if len(result) > RESULT_BYTES_MAX:
        text = f"the result has {len(result):,} bytes, and {RESULT_BYTES_MAX:,} is the maximum"
        return Rejected("RESULT_TOO_LARGE", text)
    assert attempt.records is not None
    about = call.subject if isinstance(call, PersonalCall) else None
    try:
        await attempt.records.put_result(attempt.request_id, result, about=about)
    except Erased:
        return Rejected("subject_erased", "a data subject was erased while the handler ran")
    return Done()


def options_of(name: str, given: Mapping[str, Any]) -> EndpointOptions:
    known = [field.name for field in fields(EndpointOptions)]
    if unknown := given.keys() - set(known):
        raise TypeError(f"endpoint() has no option {min(unknown)!r}; it takes {', '.join(known)}")
    if "on_unknown" not in given:
        raise BadFlow(
            name,
            "choose on_unknown: what follows if the handler raises, exceeds its time limit, or its"
            " process dies. 'resend' runs it again; 'manual' stops until a person decides",
        )
    return EndpointOptions(**given)
