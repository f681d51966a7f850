"""The state of a request and of the one operation it has open; shared by every lifecycle."""

from __future__ import annotations

from typing import Literal

import msgspec

from gesta.domain.ids import job_id, own_job_id

Status = Literal[
    "requested", "validated", "queued", "sent", "failed", "expired", "cancelled", "unknown"
]

#: No automatic step leads out of these.
TERMINAL = frozenset({"sent", "failed", "expired", "cancelled"})

#: Due later than this after the event that said so: it waits in the due index, not in a queue (SQS
#: cannot delay for longer).
QUEUE_HORIZON_MS = 15 * 60 * 1000

JobKind = Literal["execute", "reconcile"]


class State(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A request as its events tell it.

    Times are epoch milliseconds; `version` counts the events of the stream.
    """

    id: str
    tenant: str
    flow: str
    status: Status
    version: int
    created_at: int
    updated_at: int
    operation: str = "send"
    intent: int = 1
    #: The version of the event that opened the operation last; part of the job's id.
    dispatch_version: int = 0
    #: Attempts that have ended, of all intents.
    attempts: int = 0
    #: `attempts` when the operation was opened last: a redrive gets a fresh budget.
    attempts_before: int = 0
    #: When the first attempt of this intent began, or a moment before that: the provider's memory
    #: of our key counts from here.
    first_attempt_at: int | None = None
    #: When it was redriven last: the time for retries counts anew.
    reopened_at: int | None = None
    #: An attempt that was journalled and has not ended.
    started: int | None = None
    #: When the next job may run: the first attempt, a retry, a resend or a question to the
    #: provider.
    due_at: int | None = None
    expires_at: int | None = None
    #: Some attempt of this intent may have had its effect.
    in_doubt: bool = False
    policy: str = ""
    #: Questions to the provider that brought no answer, in a row.
    asked: int = 0
    cancel_requested: bool = False
    purged: bool = False
    priority: int = 5
    key: str | None = None
    correlation_id: str = ""
    provider_id: str = ""
    target_id: str = ""
    reason: str = ""
    detail: str = ""
    #: It may reach the sandbox and nobody else.
    test: bool = False
    #: Executed by others: its jobs stand in the lane of its tenant.
    external: bool = False
    #: The caller brought its id, which another tenant's or flow's request may have, too.
    own: bool = False
    #: Who asked: `gesta` for everybody, another name where the engine itself did (see told.py).
    #: Every event of the stream carries it.
    source: str = "gesta"
    #: What the provider reported after it was sent, and why, in words of ours.
    delivered_at: int | None = None
    bounced_at: int | None = None
    bounce: str = ""
    complained_at: int | None = None
    complaint: str = ""
    #: The reports that were taken, by the provider's names of them.
    reports: tuple[str, ...] = ()

    @property
    def job_id(self) -> str:
        """The id of the job of the operation that was opened last."""
        if self.own:
            return own_job_id(self.tenant, self.flow, self.id, self.dispatch_version)
        return job_id(self.id, self.dispatch_version)

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def waits_for_a_person(self) -> bool:
        """In doubt, and nobody but a person can end it."""
        return self.status == "unknown" and self.due_at is None

    @property
    def attempted_from(self) -> int:
        """No attempt of this intent can have begun before this."""
        return (
            max(self.created_at, self.due_at or 0)
            if self.first_attempt_at is None
            else self.first_attempt_at
        )

    @property
    def wants(self) -> JobKind | None:
        """The kind of job that should exist for this state, if any."""
        if self.status == "queued":
            return "execute"
        if self.status == "unknown" and self.due_at is not None:
            return "execute" if self.policy == "same_key" else "reconcile"
        return None

    @property
    def is_far(self) -> bool:
        """Whether the next job is due beyond what a queue may hold."""
        return self.due_at is not None and self.due_at - self.updated_at > QUEUE_HORIZON_MS

    @property
    def sweep_at(self) -> int | None:
        """When the sweep has to look at this request by itself; None when a job or nobody will."""
        if self.is_terminal:
            return None
        if self.status == "unknown":
            return self.due_at if self.wants == "reconcile" or self.is_far else None
        if self.due_at is None or not self.is_far:
            return self.expires_at
        return self.due_at if self.expires_at is None else min(self.due_at, self.expires_at)
