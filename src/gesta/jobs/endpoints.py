"""The endpoints of one application: declare them, submit calls, read and cancel their jobs."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from gesta.domain.stored_job import is_id
from gesta.errors import GestaError, NotFound, OutcomeTimeout
from gesta.jobs.answers import Answer, JobProblem, of_program, problem_of
from gesta.jobs.arguments import Parameters, parameters_of, sign
from gesta.jobs.call import (
    CALL_BYTES_MAX,
    ID_HEADER,
    EndpointCall,
    allowed_headers,
    gathered,
    job_id_of,
)
from gesta.jobs.endpoint import Endpoint, endpoint_of, options_of
from gesta.jobs.representation import JobRepresentation, representation
from gesta.jobs.shared import SharedJobs, shared_jobs
from gesta.jobs.values import encode_result, encode_value
from gesta.runtime.clock import sleep

if TYPE_CHECKING:
    from gesta.domain.status_events import Event
    from gesta.engine.engine import Engine
    from gesta.engine.request import Request

#: The longest a poll waits, and how often a stream looks for changes.
WAIT_SECONDS_MAX, LOOK_SECONDS = 60.0, 0.25
#: A stream sends a sign of life at least this often.
ALIVE_SECONDS = 15.0

#: (headers in lower case) → the tenant.
TenantOf = Callable[[Mapping[str, str]], str]


def one_tenant(_: Mapping[str, str]) -> str:
    return "default"


class EndpointsCore(ABC):
    """What the modules of the frameworks share. Their requests have the same attributes."""

    #: The classes of the framework.
    request_type: ClassVar[type]
    response_type: ClassVar[Any]
    #: The parameter by which the framework gives us the request.
    request_name: ClassVar[str]
    #: Whether the framework parses calls with pydantic.
    by_pydantic: ClassVar[bool] = False

    def __init__(
        self,
        engine: Engine,
        *,
        path: str = "/jobs",
        tenant: TenantOf = one_tenant,
        jobs_url: str | Mapping[str, str] | None = None,
    ) -> None:
        """`path`: where the jobs are mounted. `tenant`: who calls, from the headers. `jobs_url`:
        the Redis server where other services read and create jobs, of tenant `default`, or one for
        each tenant. Raises BadSettings if two tenants would share one.
        """
        self.engine, self.path, self.tenant = engine, f"/{path.strip('/')}", tenant
        self._endpoints: dict[str, Endpoint] = {}
        self._shared: Mapping[str, SharedJobs] = shared_jobs(jobs_url, self._endpoints)
        for name, shared in self._shared.items():
            engine.add_component(f"jobs {name}", shared.run)

    def encoder_of(self, returns: Any) -> Callable[[Any], bytes]:
        """How results of a handler become JSON, by its return annotation."""
        return encode_result

    @abstractmethod
    def response_of(self, answer: Answer) -> Any:
        """The answer as the framework's response."""

    def endpoint(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Answer calls of the handler below with 202, and execute it as a job."""

        def wrap(handler: Callable[..., Any]) -> Callable[..., Any]:
            parameters = parameters_of(
                name, handler, self.request_type, by_pydantic=self.by_pydantic
            )
            endpoint = self._declare(name, handler, parameters, options)

            @functools.wraps(handler)
            async def accept(*args: Any, **given: Any) -> Any:
                # Starlette calls with the request alone, the others by name.
                request = args[0] if args else given.pop(self.request_name)
                try:
                    answer = await self._accept(endpoint, request, parameters, given)
                except (JobProblem, GestaError) as error:
                    answer = problem_of(error).answer()
                return self.response_of(answer)

            request = inspect.Parameter(
                self.request_name, inspect.Parameter.KEYWORD_ONLY, annotation=self.request_type
            )
            sign(accept, parameters, request, self.response_type)
            return accept

        return wrap

    def _declare(
        self,
        name: str,
        handler: Callable[..., Any],
        parameters: Parameters,
        given: Mapping[str, Any],
    ) -> Endpoint:
        async def execute(call: EndpointCall) -> Any:
            return await handler(**parameters.restored(call))

        endpoint = endpoint_of(
            name,
            execute,
            parameters.of_job,
            options_of(name, given),
            encode=self.encoder_of(parameters.returns),
            takes_body=parameters.request is not None,
        )
        self.engine.add(endpoint.flow)
        self._endpoints[name] = endpoint
        if self._shared and not endpoint.is_personal:
            subscribe = self.engine.on(name, "created", name=f"jobs {name}", since="beginning")
            subscribe(self._mirror)
        return endpoint

    async def _mirror(self, event: Event) -> None:
        if event.tenant in self._shared:
            await self._shared[event.tenant].mirror(event)

    async def _accept(
        self, endpoint: Endpoint, request: Any, parameters: Parameters, given: dict[str, Any]
    ) -> Answer:
        """202 with the job and where to ask for it; the same call under the same id again."""
        try:
            job_id = job_id_of(request.headers.get(ID_HEADER))
        except ValueError as error:
            raise JobProblem(400, "bad_job_id", f"{ID_HEADER}: {error}") from None
        call = endpoint.call(
            id=job_id,
            arguments=of_program(
                f"storing the arguments of the endpoint {endpoint.name}", parameters.stored, given
            ),
            headers=allowed_headers(request.headers.items(), endpoint.headers),
            route_params={name: encode_value(one) for name, one in request.path_params.items()},
            query_params=gathered(request.query_params.multi_items()),
            body=await _text(request) if endpoint.takes_body else "",
        )
        made = await self.engine.submit(
            call, tenant=self.tenant_of(request.headers), priority=endpoint.priority(call)
        )
        try:
            body = msgspec.json.encode(await self.read(made))
        except NotFound:
            text = "The job with this id has ended and was removed; it is not executed again"
            raise JobProblem(410, "gone", text) from None
        return Answer(202, body, headers={"Location": f"{self.path}/{made.id}"})

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """Raises JobProblem."""
        return of_program("tenant= of Endpoints", self.tenant, headers)

    async def find(self, job_id: str, tenant: str) -> Request:
        """Raises NotFound, also for requests that are no jobs of these endpoints."""
        if not is_id(job_id.lower()):
            raise JobProblem(400, "bad_job_id", "A job id is a GUID, like 0a1b2c3d-…")
        names = list(self._endpoints)
        view = await self.engine.pipeline.loader.find(names, tenant, job_id.lower())
        if view is None:
            raise NotFound("job", job_id)
        return await self.engine.request(view.state.id, flow=view.state.flow, tenant=tenant)

    async def read(self, request: Request) -> JobRepresentation:
        pipeline, endpoint = self.engine.pipeline, self._endpoints[request.flow]
        view = await request.view()
        state, result = view.state, None
        if state.status == "completed" and not (
            endpoint.is_personal and await pipeline.subjects.erased(view)
        ):
            result = await pipeline.records.of(state.tenant).result(state.id)
            if result is None:
                # Retention may have removed both since: raises NotFound.
                await request.view()
        return representation(state, result, endpoint.options.max_retries)

    async def wait(self, request: Request, seconds: float) -> None:
        """Waits until the job ends, but not longer than this."""
        if seconds > 0:
            try:
                await request.outcome(timeout=min(seconds, WAIT_SECONDS_MAX))
            except OutcomeTimeout:
                return

    async def follow(
        self, request: Request, is_gone: Callable[[], bool]
    ) -> AsyncIterator[JobRepresentation | None]:
        """The job as it is and after each change, until it ends or the reader is gone; None as a
        sign of life.
        """
        runtime, last, silent = self.engine.pipeline.runtime, None, 0.0
        while True:
            job = await self.read(request)
            if job != last:
                yield job
                last, silent = job, 0.0
            if job.completed_at is not None or job.status == "Unknown":
                return
            await sleep(runtime, LOOK_SECONDS)
            if is_gone():
                return
            silent += LOOK_SECONDS
            if silent >= ALIVE_SECONDS:
                yield None
                silent = 0.0


async def _text(request: Any) -> str:
    """The body, of which no more is read than may be stored."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > CALL_BYTES_MAX:
            raise JobProblem(413, "too_large", f"{CALL_BYTES_MAX:,} bytes is the maximum")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise JobProblem(400, "bad_body", "The body must be UTF-8 text") from None
