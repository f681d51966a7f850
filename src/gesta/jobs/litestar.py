"""Slow endpoints in Litestar.

jobs = Endpoints(engine)

@post("/reports", status_code=202)
@jobs.endpoint("reports.build", on_unknown="resend")
async def build(data: JSONBody[Report]) -> Summary: ...

app = Litestar([build, jobs.route], lifespan=[engine.lifespan])
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from litestar import Request, Response, asgi
from litestar.types import Receive, Scope, Send

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
from gesta.jobs.endpoints import EndpointsCore
from gesta.jobs.status_app import StatusApp


class Endpoints(EndpointsCore):
    @property
    def route(self) -> Any:
        """A route handler for the application: it answers for the jobs."""
        app = StatusApp(self)

        async def jobs(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)  # type: ignore[arg-type]

        return asgi(self.path, is_mount=True, copy_scope=True)(jobs)

    def endpoint(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Answer calls of the handler below with 202, and execute it as a job."""

        def wrap(handler: Callable[..., Any]) -> Callable[..., Any]:
            parameters = parameters_of(name, handler, Request, decode_value)

            async def execute(call: EndpointCall) -> Any:
                return await handler(**parameters.restored(call))

            endpoint = self.declare(name, execute, encode_result, parameters.of_job, options)

            @functools.wraps(handler)
            async def accept(**given: Any) -> Response[bytes]:
                request = given.pop("request")
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
        self,
        endpoint: Endpoint,
        parameters: Parameters,
        request: Request[Any, Any, Any],
        given: dict[str, Any],
    ) -> Answer:
        try:
            job_id = job_id_of(request.headers.get(ID_HEADER))
        except ValueError as error:
            raise JobProblem(400, "bad_job_id", f"{ID_HEADER}: {error}") from None
        body = b"" if parameters.request is None else await request.body()
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise JobProblem(400, "bad_body", "The body must be UTF-8 text") from None
        call = endpoint.call(
            id=job_id,
            arguments={name: encode_value(value) for name, value in given.items()},
            headers=allowed_headers(request.headers.items(), endpoint.headers),
            route_params={name: encode_value(one) for name, one in request.path_params.items()},
            query_params=gathered(request.query_params.multi_items()),
            body=text,
        )
        return await self.submit(endpoint, call, self.tenant(request.headers))


def _sign(accept: Callable[..., Any], parameters: Parameters) -> None:
    """The handler's own parameters, which Litestar parses, and the request."""
    kept = [
        one.replace(annotation=parameters.hints[one.name], kind=one.KEYWORD_ONLY)
        for one in parameters.signature.parameters.values()
        if one.name != parameters.request
    ]
    request = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    taken = [*kept, request]
    signed = inspect.Signature(taken, return_annotation=Response[bytes])
    accept.__signature__ = signed  # type: ignore[attr-defined]
    accept.__annotations__ = {one.name: one.annotation for one in taken}
    accept.__annotations__["return"] = Response[bytes]
    del accept.__wrapped__  # type: ignore[attr-defined]


def response_of(answer: Answer) -> Response[bytes]:
    return Response(
        answer.body,
        status_code=answer.status,
        headers=dict(answer.headers),
        media_type=answer.media_type,
    )
