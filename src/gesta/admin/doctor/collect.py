"""The facts for a diagnosis, gathered from a running engine."""

from collections.abc import AsyncIterator

from gesta.admin.doctor.checks import Facts, suspicious_fields
from gesta.admin.doctor.explain import RequestFacts
from gesta.admin.wording import HERE, Target
from gesta.domain.codec import decode_meta
from gesta.engine.pipeline import Pipeline
from gesta.flows.webhook import NAME as WEBHOOK
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.ports.event_store import Recorded
from gesta.ports.job_queue import Backlog, QueueStanding, by_flow
from gesta.ports.read_model import Filter, View
from gesta.projector.partitions import projected_position, projects
from gesta.requests.dead_letters import failure_of
from gesta.runtime.redaction import scrub
from gesta.runtime.settings import odd_variables
from gesta.subscriptions.status_webhooks import Listening, listening_of
from gesta.tenants.pauses import Pause

#: Counted up to here; more is no other news.
LIMIT = 1_000


async def examine(pipeline: Pipeline, tenant: str, place: Target = HERE) -> Facts:
    """The store as it is now.

    Looks at every live job and, for a few seconds, at the file: for people, not for the road.
    """
    stores, now = pipeline.environment.stores, pipeline.runtime.now_ms()
    unseen = await stores.events.follow(
        await projected_position(stores.checkpoints, stores.partitions), LIMIT
    )
    undecided, undecided_since = await stores.read_model.undecided()
    failed = await stores.read_model.find(Filter(tenant, status="failed", limit=LIMIT))
    return Facts(
        now_ms=now,
        store=scrub(stores.name),
        key_from=pipeline.environment.master.where,
        health=await stores.health(),
        roles=await stores.leases.roles(),
        checkpoints=await stores.checkpoints.checkpoints(),
        partitions=stores.partitions,
        end=await stores.events.end(),
        unseen=len(unseen),
        unseen_since_ms=_happened(unseen[0]) if unseen else None,
        backlog=await stores.job_inspection.backlog(),
        quarantined=await stores.read_model.quarantined(None, LIMIT),
        undecided=undecided,
        undecided_since_ms=undecided_since,
        dead_letters=sum(
            failure_of(view.state, pipeline.flows.get(view.state.flow), now) is not None
            for view in failed
        ),
        odd_settings=odd_variables(),
        outbox=[] if stores.outbox is None else await stores.outbox.standing(),
        pauses=await _pauses(pipeline, tenant),
        alerts_to="" if pipeline.alerts is None else scrub(pipeline.alerts.to),
        alerts_fault="" if pipeline.alerts is None else await pipeline.alerts.fault(),
        told={one.code: one.fault for one in await _told(pipeline, tenant)},
        declared=frozenset(pipeline.flows),
        tenant=tenant,
        place=place,
    )


async def _pauses(pipeline: Pipeline, tenant: str) -> list[Pause]:
    """For everybody, of tenants with held jobs, and of this one: its own are known only to who asks
    for it.
    """
    found = {
        str(one.scope): one
        for one in (*await pipeline.pausing.paused(None), *await pipeline.pausing.paused(tenant))
    }
    return [found[scope] for scope in sorted(found)]


async def _told(pipeline: Pipeline, tenant: str) -> list[Listening]:
    flow = pipeline.flows.get(WEBHOOK)
    await pipeline.config.refresh(tenant)
    return [] if flow is None else listening_of(pipeline.config.of(tenant), flow)


async def examine_request(pipeline: Pipeline, view: View, place: Target = HERE) -> RequestFacts:
    """Looks at every live job, too: whether somebody executes the flow shows in what else of it is
    at work.
    """
    state = view.state
    await pipeline.pausing.paused(state.tenant)
    stores, now = pipeline.environment.stores, pipeline.runtime.now_ms()
    name = state.job_id
    found = await stores.job_inspection.jobs(name[:-1], 1)
    roles = await stores.leases.roles()
    return RequestFacts(
        state,
        now,
        any(projects(role) and role.is_held(now) for role in roles),
        next((one for one in found if one.job.id == name), None),
        pipeline.pausing.pause_of(view, pipeline.flows.get(state.flow)),
        None if (flow := pipeline.flows.get(state.flow)) is None else flow.is_external,
        any(role.name == SWEEP and role.is_held(now) for role in roles),
        by_flow(await stores.job_inspection.backlog()).get(state.flow, Backlog()).at_work,
        place,
        await pipeline.subjects.is_erased(view),
    )


async def suspicious_jobs(pipeline: Pipeline) -> AsyncIterator[tuple[QueueStanding, list[str]]]:
    """Every live job, with the fields that hold something else than a pointer."""
    after_id = ""
    while page := await pipeline.environment.stores.job_inspection.jobs(after_id, LIMIT):
        for standing in page:
            yield standing, suspicious_fields(standing)
        after_id = page[-1].job.id


def _happened(recorded: Recorded) -> int | None:
    try:
        return decode_meta(recorded.meta).occurred_at
    except ValueError:
        return None
