"""Which job a request needs: the job of its open operation."""

from gesta.domain.ids import external_queue_of
from gesta.domain.state import State
from gesta.ports.job_queue import Job


def opened_job(state: State) -> Job | None:
    """The job of the operation that the last event opened, if it opened one that is due soon."""
    if state.dispatch_version != state.version or state.wants != "execute":
        return None
    if state.due_at is not None and state.is_far:
        return None
    return job_for(state)


def is_wanted(job: Job, state: State) -> bool:
    """Whether the operation of a job is still open."""
    return state.dispatch_version == job.dispatch_version and not state.is_terminal


def job_for(state: State, *, possibly_executed: bool = False) -> Job:
    """The pointer to a request's open operation."""
    kind = state.job_kind
    assert kind is not None
    flow = external_queue_of(state.flow, state.tenant) if state.external else state.flow
    return Job(
        state.job_id,
        state.tenant,
        flow,
        state.id,
        state.dispatch_version,
        kind,
        state.due_at or 0,
        state.priority,
        possibly_executed,
    )
