"""Bulk decisions: the filter, the action and the progress of a run."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.requests import FlowName, TtlSeconds
from gesta.api_types.structs import Asked, Representation
from gesta.domain.lifecycles import Status

BulkAction = Literal["resolve", "retry", "cancel", "redrive", "purge"]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
#: Requests per second.
Rate = Annotated[float, msgspec.Meta(ge=0.1, le=1_000)]


class Bulk(Asked, frozen=True, kw_only=True):
    """Decide about every request of a tenant that fits all the conditions given, at least one of
    `flow`, `status`, `reason`, `target`, `template`, `dead_letters`, `since` and `until`.

    `since` and `until` limit when a request was created. `dead_letters` limits it to requests that
    are dead letters now; purge needs it. `dry_run` applies the same checks and changes nothing; it
    does not see whether an attempt is running. `rate` is in requests per second. `outcome` and
    `evidence` belong to resolve, `ttl_seconds` and `again` to redrive.
    """

    action: BulkAction
    flow: FlowName | None = None
    status: Status | None = None
    reason: str | None = None
    target: str | None = None
    template: str | None = None
    dead_letters: Literal[True] | None = None
    since: Moment | None = None
    until: Moment | None = None
    dry_run: bool = False
    rate: Rate = 50.0
    outcome: Literal["succeeded", "not_executed", "failed"] | None = None
    evidence: str | None = None
    ttl_seconds: TtlSeconds | None = None
    again: bool = False


class BulkSample(Representation, frozen=True):
    id: str
    flow: str
    status: Status
    reason: str | None
    created_at: str


class BulkRefusal(Representation, frozen=True):
    """A request that its state kept from being changed. `code` is stable."""

    id: str
    flow: str
    code: str
    detail: str


class BulkProgress(Representation, frozen=True):
    """How far a run has come.

    `id` is the version of the run's entry in the audit log and resumes it; null in a dry run.
    `matched` is how many requests fitted when the run began. In a run that was stopped and resumed,
    `done` counts the requests of the earlier parts, too, and `matched` those and the requests that
    still fit; a part that ended in a crash is not counted. `refusals` lists those refused
    since the last report. `sample` has a few of the requests, in the first report only. A dry run
    gives one report: `refused` counts the requests that would be refused, `refusals` lists the
    first 1,000 of them, and `done` is 0.
    """

    action: BulkAction
    id: int | None
    matched: int
    done: int
    refused: int
    finished: bool
    sample: list[BulkSample]
    refusals: list[BulkRefusal]


class BulkLine(Representation, frozen=True, omit_defaults=True):
    """A line of the answer. `problem` is the last line of a run that was stopped by an error."""

    progress: BulkProgress | None = None
    problem: ProblemRepresentation | None = None
