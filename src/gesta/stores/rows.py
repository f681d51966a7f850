"""Rows of the SQL stores, in the order in which their statements list the columns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gesta.domain.codec import decode_state
from gesta.ports.fences import Fence
from gesta.ports.job_queue import Job, JobState, LeasedJob, QueueStanding
from gesta.ports.leases import LiveProcess
from gesta.ports.read_model import View

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
state_of = decode_state
#: The column `jobs.state`.
JOB_STATES: Mapping[int, JobState] = {0: "waiting", 1: "ready", 2: "leased", 3: "held"}


def view_row(view: View) -> tuple[Any, ...]:
    state = view.state
    return (
        state.tenant,
        state.flow,
        state.id,
        state.status,
        state.version,
        state.updated_at,
        state.sweep_at,
        _encode(state),
        view.payload,
    )


def view_of(row: Any) -> View:
    return View(state_of(row[0]), row[1])


def process_row(process: LiveProcess) -> tuple[Any, ...]:
    return (
        process.id,
        process.host,
        process.pid,
        " ".join(process.roles),
        process.version,
        process.since_ms,
    )


def process_of(row: Iterable[Any]) -> LiveProcess:
    id_, host, pid, roles, version, since_ms = row
    return LiveProcess(id_, host, pid, tuple(roles.split()), version, since_ms)


def job_of(row: Iterable[Any]) -> Job:
    *values, possibly_executed = row
    return Job(*[*values, bool(possibly_executed)])


def leased_job_of(row: Iterable[Any], token: str) -> LeasedJob:
    *values, lease_count = row
    job = job_of(values)
    return LeasedJob(job, token, lease_count, job.due_ms)


def queued_job_of(row: Iterable[Any], now_ms: int) -> QueueStanding:
    *values, number, lease_count, until_ms = row
    job, state = job_of(values), JOB_STATES[number]
    if state == "waiting" and job.due_ms <= now_ms:
        # The next take makes it ready.
        state = "ready"
    return QueueStanding(job, state, lease_count, until_ms)


def which_written(wanted: Sequence[T], written: Iterable[T]) -> list[bool]:
    """Which of these a statement wrote. Of two equal ones, it wrote the first."""
    left, answers = set(written), []
    for one in wanted:
        answers.append(one in left)
        left.discard(one)
    return answers


def fence_of(row: Iterable[Any]) -> Fence:
    kind, other, tenant = row
    return Fence(kind, other, tenant or None)


def triggers_of(fence: Fence) -> str:
    """The set of triggers that a fence needs. One set serves the fences of all tenants."""
    return fence.kind if fence.tenant is None else "tenant"


def undispatched_turns(jobs: Sequence[Job], first: int, last: Mapping[str, int]) -> list[int]:
    """A turn for each job. The jobs of a tenant get rising turns, beginning with `first`, the turn
    of the first undispatched job of all: tenants alternate, and a new tenant overtakes for a short
    time only.

    `last`: the turn of the last undispatched job of each tenant.
    """
    given, turns = dict(last), []
    for job in jobs:
        given[job.tenant] = max(given.get(job.tenant, 0) + 1, first)
        turns.append(given[job.tenant])
    return turns
