"""Slow endpoints in Starlette and FastAPI.

jobs = Endpoints(engine)
app.mount("/jobs", jobs.app)

@app.post("/reports", status_code=202)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(report: Report) -> Summary: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gesta.jobs.answers import Answer, JobProblem, problem_of
from gesta.jobs.arguments import (
    Parameters,
    decode_value,
    encode_result,
    encode_value,
    parameters_of,
)
from gesta.jobs.call import ID_HEADER, EndpointCall, allowed_headers, gathered, job_id_of
from gesta.jobs.endpoint import Endpoint
from gesta.jobs.endpoints import CALL_BYTES_MAX, EndpointsCore
from gesta.jobs.status_app import StatusApp

#: The parameter by which the framework gives us the request where the handler takes none.
_REQUEST = "gesta_request"


class Endpoints(EndpointsCore):
    @property
    def app(self) -> StatusApp:
        """Mount it at `path`: it answers for the jobs."""
        return StatusApp(self)

    def endpoint(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Answer calls of the handler below with 202, and execute it as a job."""

        def wrap(handler: Callable[..., Any]) -> Callable[..., Any]:
            parameters = parameters_of(name, handler, Request, decode_value)

            async def execute(call: EndpointCall) -> Any:
                return await handler(**parameters.restored(call))

            endpoint = self.declare(name, execute, encode_result, parameters.of_job, options)

            @functools.wraps(handler)
            async def accept(*args: Any, **given: Any) -> Response:
                request = args[0] if args else given.pop(parameters.request or _REQUEST)
                try:
                    return response_of(await self._accept(endpoint, parameters, request, given))
                except Exception as error:
                    problem = problem_of(error)
                    if problem is None:
                        raise
                    return response_of(problem.answer())

            _sign(accept, parameters)
            return accept

        return wrap

    async def _accept(
        self, endpoint: Endpoint, parameters: Parameters, request: Request, given: dict[str, Any]
    ) -> Answer:
        try:
            job_id = job_id_of(request.headers.get(ID_HEADER))
        except ValueError as error:
            raise JobProblem(400, "bad_job_id", f"{ID_HEADER}: {error}") from None
        call = endpoint.call(
            id=job_id,
            arguments={name: encode_value(value) for name, value in given.items()},
            headers=allowed_headers(request.headers.items(), endpoint.headers),
            route_params=dict(request.path_params),
            query_params=gathered(request.query_params.multi_items()),
            body="" if parameters.request is None else await _text(request),
        )
        return await self.submit(endpoint, call, self.tenant(request.headers))


async def _text(request: Request) -> str:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > CALL_BYTES_MAX:
            raise JobProblem(413, "too_large", f"{CALL_BYTES_MAX:,} bytes is the maximum")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise JobProblem(400, "bad_body", "The body must be UTF-8 text") from None


def _sign(accept: Callable[..., Any], parameters: Parameters) -> None:
    """The handler's own parameters, so that FastAPI parses and documents them, and the request."""
    signature = parameters.signature
    taken = [
        one.replace(annotation=_hint(parameters, one)) for one in signature.parameters.values()
    ]
    if parameters.request is None:
        taken.append(
            inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
        )
    signed = inspect.Signature(taken, return_annotation=Response)
    accept.__signature__ = signed  # type: ignore[attr-defined]
    accept.__annotations__ = {one.name: one.annotation for one in taken} | {"return": Response}
    del accept.__wrapped__  # type: ignore[attr-defined]


def _hint(parameters: Parameters, one: inspect.Parameter) -> Any:
    return Request if one.name == parameters.request else parameters.hints[one.name]


def response_of(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), media_type=answer.media_type)
