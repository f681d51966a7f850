"""Jobs that other services create: claimed, adopted as requests under their own ids, and completed.

Hash and request have the same id, so a job is one request, however often a process dies. Calls over
HTTP also get a hash; the same claim then finds the existing request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gesta.domain.ids import id_text
from gesta.domain.status_events import Event
from gesta.domain.stored_job import JobError, JobStatus, StoredJob, job_at
from gesta.errors import BadSettings, Conflict, InvalidRequest, NotFound, Refused, StoreError
from gesta.jobs.call import EndpointCall
from gesta.jobs.endpoint import Endpoint
from gesta.jobs.representation import error_of
from gesta.ports.job_store import Claim, ClaimedJob, Completion, Failing, Held, Jobs, Postponement
from gesta.ports.stores import JobPorts
from gesta.runtime.clock import sleep
from gesta.runtime.component import repeat
from gesta.stores import job_places, open_jobs

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.engine.pipeline import Pipeline
    from gesta.engine.request import Request

#: How long a claim lasts, and how often it is renewed.
LEASE_SECONDS, BEAT_SECONDS = 60.0, 15.0
#: The pause between two checks: while there are jobs, and while there are none.
BUSY_SECONDS, IDLE_SECONDS = 0.1, 1.0
#: How many claimed jobs one process has at most.
HELD_MAX = 50
#: If the store fails this many times in a row for one job, and for no other job, the job is the
#: cause.
FAILURES_MAX = 3
_log = logging.getLogger("gesta.jobs")


def shared_jobs(
    jobs_url: str | Mapping[str, str] | None, endpoints: Mapping[str, Endpoint]
) -> dict[str, SharedJobs]:
    """The jobs of each tenant. Raises BadSettings if two tenants have the same place: a hash has no
    tenant, so each would read and execute the other's jobs.
    """
    urls = {"default": jobs_url} if isinstance(jobs_url, str) else dict(jobs_url or {})
    tenants: dict[tuple[object, ...], str] = {}
    for tenant, url in urls.items():
        for place in job_places(url):
            other = tenants.setdefault(place, tenant)
            if other != tenant:
                raise BadSettings(
                    f"jobs_url: tenants {other!r} and {tenant!r} use the same jobs; give each one"
                    " a server, a database (/1) or a prefix (?prefix=acme) of its own"
                )
    return {
        tenant: SharedJobs(url, tenant=tenant, endpoints=endpoints) for tenant, url in urls.items()
    }


class SharedJobs:
    """The jobs at a URL, which all belong to one tenant: a hash has none."""

    def __init__(self, url: str, *, tenant: str, endpoints: Mapping[str, Endpoint]) -> None:
        self._url, self._tenant, self._endpoints = url, tenant, endpoints
        #: The engine that runs, which `gesta worker` makes of the flows of the program's own.
        self._engine: Engine | None = None
        self._ports: JobPorts | None = None
        self._held: dict[str, tuple[Held, Request]] = {}
        #: Claimed and not yet adopted. They stay when the store fails in between.
        self._claimed: list[ClaimedJob] = []
        #: Job → how often in a row the store failed for it.
        self._failures: dict[str, int] = {}
        #: Jobs that cannot be read, each logged once.
        self._quarantined: set[str] = set()
        self._beat_at = 0.0
        self._worker = ""

    @property
    def store(self) -> Jobs:
        if self._ports is None:
            raise StoreError("the job store is not open yet; gesta will try again")
        return self._ports.job_store

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise StoreError("the engine is not running yet; gesta will try again")
        return self._engine

    async def run(self, engine: Engine) -> None:
        """A component of the engine."""
        self._engine, pipeline = engine, engine.pipeline
        runtime = pipeline.runtime
        self._ports = await open_jobs(self._url, runtime)
        self._worker = id_text(runtime.random_bytes(16))
        try:
            await repeat(partial(self._step, pipeline), "jobs", pipeline.process)
        finally:
            with suppress(Exception):
                # The next process claims them at once, and no retry is lost.
                await self.store.release(
                    [
                        *(one.held for one in self._claimed),
                        *(held for held, _ in self._held.values()),
                    ]
                )
            self._held.clear()
            self._claimed.clear()
            await self._ports.close()
            self._ports = None

    async def mirror(self, event: Event) -> None:
        """A handler of `created`: writes the hash of a request. A hash that another service made
        stays.
        """
        try:
            request = await self.engine.request(
                event.request_id, flow=event.flow, tenant=self._tenant
            )
            call = await request.payload()
        except NotFound:
            return
        assert isinstance(call, EndpointCall)
        job = job_at(
            event.at_ms,
            id=event.request_id,
            name=event.flow,
            headers=call.headers,
            route_params=call.route_params,
            query_params=call.query_params,
            payload=call.body or msgspec.json.encode(call.arguments).decode(),
            max_retries=self._endpoints[event.flow].options.max_retries,
        )
        (created,) = await self.store.create([job])
        if created.error is not None and created.error.reason != "DUPLICATE":
            raise StoreError(created.error.message)

    async def _step(self, pipeline: Pipeline) -> None:
        await self.store.reap()
        await self._beat(pipeline)
        await self._adopt_claimed(pipeline)
        outage = await self._settle(pipeline)
        claimed = await self.store.claim(
            Claim(
                worker_id=self._worker,
                names=tuple(self._endpoints),
                limit=HELD_MAX - len(self._held),
                lease_seconds=LEASE_SECONDS,
                adopts=True,
            )
        )
        if claimed.error is not None:
            raise StoreError(claimed.error.message)
        self._claimed += [one.value for one in claimed.value or () if one.value is not None]
        await self._adopt_claimed(pipeline)
        if outage is not None:
            raise outage
        is_busy = bool(self._held or claimed.value)
        await sleep(pipeline.runtime, BUSY_SECONDS if is_busy else IDLE_SECONDS)

    async def _adopt_claimed(self, pipeline: Pipeline) -> None:
        while self._claimed:
            try:
                await self._adopt(self._claimed[0])
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 -- one unreadable request; the rest goes on
                self._quarantine(pipeline, self._claimed[0].held.id, error)
            del self._claimed[0]

    def _quarantine(self, pipeline: Pipeline, job_id: str, error: Exception) -> None:
        """Stop working on a job that cannot be read. It is claimed again when its claim expires."""
        self._held.pop(job_id, None)
        self._failures.pop(job_id, None)
        if job_id not in self._quarantined:
            self._quarantined.add(job_id)
            pipeline.telemetry.quarantined("shared job", job_id, 0, error)

    async def _adopt(self, claimed: ClaimedJob) -> None:
        """Submit the job as a request with the same id, unless that exists."""
        job, held = claimed.job, claimed.held
        try:
            request = await self.engine.request(job.id, flow=job.name, tenant=self._tenant)
        except NotFound:
            try:
                call = self._call(job)
                priority = self._endpoints[job.name].priority(call)
            except Exception as error:  # noqa: BLE001 -- `subject` and `priority` are the program's
                await self._refuse(held, error)
                return
            try:
                request = await self.engine.submit(call, tenant=self._tenant, priority=priority)
            except (Conflict, InvalidRequest, LookupError, TypeError, ValueError) as error:
                await self._refuse(held, error)
                return
        self._held[job.id] = held, request

    async def _refuse(self, held: Held, error: Exception) -> None:
        """Fail a job that cannot be adopted, so that it does not block others."""
        code = "DUPLICATE_JOB" if isinstance(error, Conflict) else "PARSE_ERROR"
        _log.warning("Job %s cannot be adopted: %r", held.id, error)
        text = "The job does not fit the endpoint"
        await self.store.fail([Failing(held, JobError(code, text))])

    def _call(self, job: StoredJob) -> EndpointCall:
        endpoint = self._endpoints[job.name]
        return endpoint.call(
            id=job.id,
            arguments=endpoint.arguments(job),
            headers={
                name.lower(): values
                for name, values in job.headers.items()
                if name.lower() in endpoint.headers
            },
            route_params=job.route_params,
            query_params=job.query_params,
            body=job.payload,
        )

    async def _beat(self, pipeline: Pipeline) -> None:
        now = pipeline.runtime.monotonic()
        if not self._held or now - self._beat_at < BEAT_SECONDS:
            return
        ids = list(self._held)
        pulses = await self.store.heartbeat([self._held[one][0] for one in ids], LEASE_SECONDS)
        self._beat_at = now
        for job_id, pulse in zip(ids, pulses, strict=True):
            if pulse == "held":
                continue
            if pulse == "cancel" or await self._is_canceled(job_id):
                await self._cancel(pipeline, job_id)
            if pulse == "lost":
                # Another process has claimed it, for the same request; or a service has ended it.
                self._held.pop(job_id, None)

    async def _is_canceled(self, job_id: str) -> bool:
        """Whether another service has written that the job is canceled."""
        (found,) = await self.store.get([job_id])
        return found.value is not None and found.value.status is JobStatus.CANCELED

    async def _cancel(self, pipeline: Pipeline, job_id: str) -> None:
        try:
            await self._held[job_id][1].cancel()
        except Refused:
            # It has ended, or a person has to decide.
            return
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- one unreadable request
            self._quarantine(pipeline, job_id, error)

    async def _settle(self, pipeline: Pipeline) -> StoreError | None:
        """Complete the hashes of requests that have ended. Returns the failure of the store."""
        failed: dict[str, StoreError] = {}
        looked_at = list(self._held)
        for job_id in looked_at:
            try:
                is_over = await self._settle_one(pipeline, *self._held[job_id])
            except StoreError as error:
                failed[job_id] = error
                continue
            except Exception as error:  # noqa: BLE001 -- one unreadable request; the rest goes on
                self._quarantine(pipeline, job_id, error)
                continue
            self._failures.pop(job_id, None)
            if is_over:
                del self._held[job_id]
                self._quarantined.discard(job_id)
        for job_id, failure in failed.items():
            self._failures[job_id] = self._failures.get(job_id, 0) + 1
            if self._failures[job_id] >= FAILURES_MAX and len(failed) < len(looked_at):
                self._quarantine(pipeline, job_id, failure)
        return next((one for job_id, one in failed.items() if job_id in self._held), None)

    async def _settle_one(self, pipeline: Pipeline, held: Held, request: Request) -> bool:
        """Whether the job needs no claim any more."""
        try:
            state = (await request.view()).state
        except NotFound:
            # Retention has removed the request, and it is not executed again.
            gone = JobError("gone", "The job has ended and was removed")
            await self.store.fail([Failing(held, gone)])
            return True
        if not state.is_terminal:
            return False
        error = error_of(state) or JobError(state.status, "")
        if state.status == "completed":
            result = await pipeline.records.of(self._tenant).result(held.id)
            text = None if result is None else result.decode()
            (answer,) = await self.store.complete([Completion(held, text)])
        elif state.status == "cancelled":
            await self.store.cancel([held.id])
            (answer,) = await self.store.reschedule([Postponement(held, error)])
        else:
            (answer,) = await self.store.fail([Failing(held, error)])
        if answer.code == "JOB_STORE_ERROR":
            assert answer.error is not None
            raise StoreError(answer.error.message)
        return True
