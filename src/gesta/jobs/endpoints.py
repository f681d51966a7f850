"""The endpoints of one application: declare them, submit calls, read and cancel their jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.domain.stored_job import StoredJob, is_id
from gesta.errors import NotFound, OutcomeTimeout
from gesta.jobs.answers import Answer, JobProblem
from gesta.jobs.call import EndpointCall
from gesta.jobs.endpoint import RESULTS, Endpoint, Handler, endpoint_of, options_of
from gesta.jobs.representation import JobRepresentation, representation
from gesta.jobs.shared import SharedJobs
from gesta.runtime.clock import sleep

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.engine.request import Request

#: The largest call that is stored, in bytes.
CALL_BYTES_MAX = 256 * 1024
#: The longest a poll waits, and how often a stream looks for changes.
WAIT_SECONDS_MAX, LOOK_SECONDS = 60.0, 0.25
#: A stream says at least so often that it is alive.
ALIVE_SECONDS = 15.0

#: (headers in lower case) → the tenant.
TenantOf = Callable[[Mapping[str, str]], str]


def one_tenant(_: Mapping[str, str]) -> str:
    return "default"


class EndpointsCore:
    """What the modules of the frameworks share."""

    def __init__(
        self,
        engine: Engine,
        *,
        path: str = "/jobs",
        tenant: TenantOf = one_tenant,
        jobs_url: str | None = None,
    ) -> None:
        """`path`: where `app` is mounted. `tenant`: who calls, from the headers. `jobs_url`: the
        Redis server where other services read the jobs of tenant `default`, and create jobs.
        """
        self.engine, self.path, self.tenant = engine, f"/{path.strip('/')}", tenant
        self._endpoints: dict[str, Endpoint] = {}
        self._shared = None if jobs_url is None else SharedJobs(jobs_url, self._endpoints)
        if self._shared is not None:
            engine.add_component("jobs", self._shared.run)

    def declare(
        self,
        name: str,
        handler: Handler,
        encode: Callable[[Any], bytes],
        arguments: Callable[[StoredJob], dict[str, Any]],
        given: Mapping[str, Any],
    ) -> Endpoint:
        endpoint = endpoint_of(name, handler, encode, arguments, options_of(given))
        self.engine.add(endpoint.flow)
        self._endpoints[name] = endpoint
        if self._shared is not None:
            self.engine.on(name, "created", name=f"jobs {name}", since="beginning")(
                self._shared.mirror
            )
        return endpoint

    async def submit(self, endpoint: Endpoint, call: EndpointCall, tenant: str) -> Answer:
        """202 with the job and where to ask for it; the same call under the same id again."""
        size = len(msgspec.json.encode(call))
        if size > CALL_BYTES_MAX:
            text = f"The call has {size:,} bytes, and {CALL_BYTES_MAX:,} is the maximum"
            raise JobProblem(413, "too_large", text)
        request = await self.engine.submit(call, tenant=tenant)
        body = msgspec.json.encode(await self._read(request, endpoint))
        return Answer(202, body, headers={"Location": f"{self.path}/{request.id}"})

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
        return await self._read(request, self._endpoints[request.flow])

    async def wait(self, request: Request, seconds: float) -> None:
        """Until the job ends, at most so long."""
        if seconds > 0:
            try:
                await request.outcome(timeout=min(seconds, WAIT_SECONDS_MAX))
            except OutcomeTimeout:
                return

    async def follow(self, request: Request) -> AsyncIterator[JobRepresentation | None]:
        """The job as it is and after each change, until it ends; None now and then."""
        runtime, last, silent = self.engine.pipeline.runtime, None, 0.0
        while True:
            job = await self.read(request)
            if job != last:
                yield job
                last, silent = job, 0.0
            if job.completed_at is not None or job.status == "Unknown":
                return
            await sleep(runtime, LOOK_SECONDS)
            silent += LOOK_SECONDS
            if silent >= ALIVE_SECONDS:
                yield None
                silent = 0.0

    async def _read(self, request: Request, endpoint: Endpoint) -> JobRepresentation:
        state = (await request.view()).state
        result = None
        if state.status == "completed":
            kept = await self.engine.pipeline.records.of(state.tenant).get(RESULTS, state.id)
            result = None if kept is None else kept.value
        return representation(state, result, endpoint.max_retries)
