"""Collects the facts for the doctor from an open engine."""

from collections import Counter
from collections.abc import AsyncIterator

from msgspec.structs import replace

from gesta.admin.doctor.checks import Facts, suspicious_fields
from gesta.admin.doctor.explain import RequestFacts
from gesta.admin.wording import HERE, Target
from gesta.domain.codec import decode_meta
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.status_events import ALERTING
from gesta.engine.pipeline import Pipeline
from gesta.flows.webhook import NAME as WEBHOOK
from gesta.maintenance.queue_alarms import standings
from gesta.maintenance.sweeper import ROLE as SWEEP
from gesta.maintenance.unknown_money import unknown_money
from gesta.payments.ledger import errors_of
from gesta.ports.boundary_queue import BoundaryCounts
from gesta.ports.event_store import Recorded
from gesta.ports.foreign_jobs import JobTexts
from gesta.ports.job_queue import Backlog, QueueStanding, by_flow
from gesta.ports.leases import LiveProcess
from gesta.ports.read_model import Filter, View
from gesta.projector.partitions import projected_position, projects
from gesta.requests.dead_letters import failure_of
from gesta.runtime.redaction import scrub
from gesta.runtime.settings import Settings, odd_variables
from gesta.subscriptions.status_webhooks import Listening, listening_of
from gesta.tenants.pauses import Pause

#: Larger counts are not needed.
LIMIT = 1_000
#: Later than everything that is scheduled, in the year 9999.
FOREVER_MS = 253_402_300_000_000
#: Jobs of one queue and state that the search for secrets looks at.
SAMPLE = 100


async def examine(pipeline: Pipeline, tenant: str, place: Target = HERE) -> Facts:
    """The store as it is now. Reads every live job and checks the file for some seconds."""
    stores, now = pipeline.environment.stores, pipeline.runtime.now_ms()
    unseen = await stores.events.follow(
        await projected_position(stores.checkpoints, stores.partitions), LIMIT
    )
    undecided, undecided_since = await stores.read_model.undecided()
    failed = await stores.read_model.find(Filter(tenant, status="failed", limit=LIMIT))
    moved = await _transactions(pipeline, tenant)
    backlog = await stores.job_inspection.backlog()
    dead = Counter(
        view.state.flow
        for view in failed
        if failure_of(view.state, pipeline.flows.get(view.state.flow), now) is not None
    )
    return Facts(
        now_ms=now,
        store=scrub(stores.name),
        databases=_databases(pipeline.environment.settings),
        key_from=pipeline.environment.master.where,
        health=await stores.health(),
        roles=await stores.leases.roles(),
        checkpoints=await stores.checkpoints.checkpoints(),
        partitions=stores.partitions,
        end=await stores.events.end(),
        unseen=len(unseen),
        unseen_since_ms=_happened(unseen[0]) if unseen else None,
        backlog=backlog,
        later=await _later(pipeline, now),
        queue_alarms=list(standings(pipeline.flows, by_flow(backlog), dead, now)),
        quarantined=await stores.read_model.quarantined(None, LIMIT),
        undecided=undecided,
        undecided_since_ms=undecided_since,
        dead_letters=dead.total(),
        odd_settings=odd_variables(),
        outbox=[] if stores.outbox is None else await stores.outbox.standing(),
        pauses=await _pauses(pipeline, tenant),
        alerts_to="" if pipeline.alerts is None else scrub(pipeline.alerts.to),
        alerts_error="" if pipeline.alerts is None else await pipeline.alerts.error(),
        alerts_remedy="" if pipeline.alerts is None else pipeline.alerts.remedy,
        failed_alert=await _failed_alert(pipeline),
        event_webhooks={one.code: one.error for one in await _listening(pipeline, tenant)},
        declared=frozenset(pipeline.flows),
        tenant=tenant,
        place=place,
        processes=await _processes(pipeline),
        schedules=await _schedules(pipeline),
        unbalanced={state.id: errors for state in moved if (errors := errors_of(state))},
        transactions=len(moved),
        unknown_money=await unknown_money(pipeline.flows.values(), stores.sweep_index, now),
        moved_jobs={} if stores.job_counts is None else await stores.job_counts.moved(),
        boundary=await _boundary(pipeline),
    )


async def _failed_alert(pipeline: Pipeline) -> State | None:
    """The newest alert that failed or expired, if none was sent after it."""
    alerts, views = pipeline.alerts, pipeline.environment.stores.read_model
    if alerts is None:
        return None
    found = [
        view.state
        for status in ("failed", "expired", *lifecycle_of(alerts.flow_name).success)
        for view in await views.find(
            Filter(alerts.tenant, alerts.flow_name, status=status, limit=LIMIT)
        )
        if view.state.source == ALERTING and not view.state.purged
    ]
    last = max(found, key=lambda state: (state.updated_at, state.id), default=None)
    return last if last is not None and last.status in ("failed", "expired") else None


async def _later(pipeline: Pipeline, now_ms: int) -> Counter[str]:
    """Flow → requests that are due too late for a job. The sweeper puts it when they are due."""
    scheduled, _ = await pipeline.environment.stores.sweep_index.due(FOREVER_MS, LIMIT)
    return Counter(
        view.state.flow
        for view in scheduled
        if view.state.is_far and view.state.wants is not None and (view.state.due_at or 0) > now_ms
    )


async def _boundary(pipeline: Pipeline) -> BoundaryCounts | None:
    queue = pipeline.environment.boundary
    if queue is None:
        return None
    counts = await queue.counts()
    return replace(counts, oldest_ms=await pipeline.inbound_age.oldest_ms(counts))


async def _transactions(pipeline: Pipeline, tenant: str) -> list[State]:
    """The newest transactions of a tenant, with their postings."""
    views = [
        view
        for flow in pipeline.flows.values()
        if flow.lifecycle.stream == "transaction"
        for view in await pipeline.environment.stores.read_model.find(
            Filter(tenant, flow.name, limit=LIMIT)
        )
    ]
    return [view.state for view in views]


async def _schedules(pipeline: Pipeline) -> dict[str, int]:
    """The schedules that this program declares → when each is due next."""
    checkpoints = pipeline.environment.stores.checkpoints
    due: dict[str, int] = {}
    for timer in pipeline.schedules.timers:
        one = timer.schedule
        last = await checkpoints.position(one.checkpoint)
        due[one.name] = one.next_ms(last or pipeline.runtime.now_ms())
    return due


def _databases(settings: Settings) -> dict[str, str]:
    """Nothing to say where all parts are in one database."""
    parts = settings.databases
    if settings.inbound_queue_url is not None:
        parts["inbound events"] = settings.inbound_queue_url
    found = {part: scrub(url) for part, url in parts.items()}
    return found if len(set(found.values())) > 1 else {}


async def _processes(pipeline: Pipeline) -> list[LiveProcess]:
    """Every live process but this one."""
    live = await pipeline.environment.stores.leases.processes()
    return [one for one in live if one.id != pipeline.owner]


async def _pauses(pipeline: Pipeline, tenant: str) -> list[Pause]:
    """The pauses of all tenants together, of tenants with held jobs, and of this tenant."""
    found = {
        str(one.scope): one
        for one in (*await pipeline.pausing.paused(None), *await pipeline.pausing.paused(tenant))
    }
    return [found[scope] for scope in sorted(found)]


async def _listening(pipeline: Pipeline, tenant: str) -> list[Listening]:
    flow = pipeline.flows.get(WEBHOOK)
    await pipeline.config.refresh(tenant)
    return [] if flow is None else listening_of(pipeline.config.of(tenant), flow)


async def examine_request(pipeline: Pipeline, view: View, place: Target = HERE) -> RequestFacts:
    """Reads every live job, too: other running jobs of the flow show that a worker executes it."""
    state = view.state
    await pipeline.pausing.paused(state.tenant)
    stores, now = pipeline.environment.stores, pipeline.runtime.now_ms()
    name = state.job_id
    is_listed = "job_inspection" in stores.capabilities
    found = await stores.job_inspection.jobs(name[:-1], 1) if is_listed else []
    roles = await stores.leases.roles()
    return RequestFacts(
        state=state,
        now_ms=now,
        is_projected=any(projects(role) and role.is_held(now) for role in roles),
        job=next((one for one in found if one.job.id == name), None),
        pause=pipeline.pausing.pause_of(view, pipeline.flows.get(state.flow)),
        is_external=None if (flow := pipeline.flows.get(state.flow)) is None else flow.is_external,
        is_swept=any(role.name == SWEEP and role.is_held(now) for role in roles),
        at_work=by_flow(await stores.job_inspection.backlog()).get(state.flow, Backlog()).at_work,
        place=place,
        is_erased=await pipeline.subjects.is_erased(view),
        processes=await _processes(pipeline),
        unlisted_queue="" if is_listed else scrub(pipeline.environment.settings.databases["queue"]),
    )


async def suspicious_jobs(pipeline: Pipeline) -> AsyncIterator[tuple[QueueStanding, list[str]]]:
    """Every live job, with the fields that contain something else than a reference. Raises
    BadSettings if the queue cannot list its jobs.
    """
    after_id = ""
    while page := await pipeline.environment.stores.job_inspection.jobs(after_id, LIMIT):
        for standing in page:
            yield standing, suspicious_fields(standing)
        after_id = page[-1].job.id


async def sampled_jobs(pipeline: Pipeline) -> list[JobTexts]:
    """Jobs of every declared flow's queue that other programs can write to, in each state."""
    jobs = pipeline.environment.stores.foreign_jobs
    return [] if jobs is None else await jobs.sample(list(pipeline.flows), SAMPLE)


def _happened(recorded: Recorded) -> int | None:
    try:
        return decode_meta(recorded.meta).occurred_at
    except ValueError:
        return None
