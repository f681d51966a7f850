"""The state of a request and of the one operation it has open; shared by every lifecycle."""

from typing import Annotated, Any, Literal

import msgspec

from gesta.domain.ids import job_id, own_job_id

#: What the engine has to do for a request, independent of the status name of its lifecycle. open:
#: execute its operation. unknown: find out what an attempt did. idle: nothing, until a command
#: opens the next operation. ended: nothing, ever.
Phase = Literal["open", "unknown", "idle", "ended"]

#: Due later than this after the event that planned it: it waits in the due index, not in a queue
#: (SQS cannot delay for longer).
QUEUE_HORIZON_MS = 15 * 60 * 1000

Work = Literal["execute", "reconcile"]
#: The work, and the operation where it is not the usual one: `execute`, `execute-capture`.
JobKind = Annotated[str, msgspec.Meta(pattern="^(execute|reconcile)(-[a-z]{1,20})?$")]


class State(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A request after its events so far.

    Times are epoch milliseconds; `version` counts the events of the stream.
    """

    # What a request begins with is first: `created` gives it by position.
    id: str
    tenant: str
    flow: str
    #: The public word of its lifecycle.
    status: str
    version: int
    created_at: int
    updated_at: int
    phase: Phase = "open"
    #: The operation that was opened last; part of the idempotency key.
    operation: str = "send"
    intent: int = 1
    #: The version of the event that opened the operation last; part of the job's id.
    dispatch_version: int = 0
    #: When the next job may run: the first attempt, a retry, a resend or a question to the
    #: provider.
    due_at: int | None = None
    expires_at: int | None = None
    priority: int = 5
    key: str | None = None
    correlation_id: str = ""
    #: A test request: it reaches the sandbox only.
    test: bool = False
    #: Executed by external workers: its jobs are in the external queue of its tenant.
    external: bool = False
    #: Its id is the caller's own. Another tenant's or flow's request may have the same.
    own: bool = False
    #: `gesta`, or another name where the engine itself submitted it (status_events.py). Every
    #: event of the stream carries it.
    source: str = "gesta"
    #: What only this lifecycle keeps, e.g. the amounts of a transaction; of the type that
    #: `Lifecycle.facts` reads.
    facts: Any = {}
    #: Attempts that have ended, of all intents.
    attempts: int = 0
    #: `attempts` when the operation was opened last: a redrive gets a fresh budget.
    attempts_before: int = 0
    #: When the first attempt of this intent began, or a moment before that: the provider's memory
    #: of our key counts from here.
    first_attempt_at: int | None = None
    #: When it was redriven last: the time for retries counts anew.
    reopened_at: int | None = None
    #: A journaled attempt that has not ended.
    started: int | None = None
    #: An attempt of this intent may have had its effect.
    in_doubt: bool = False
    policy: str = ""
    #: How many look-ups in a row had no result.
    asked: int = 0
    cancel_requested: bool = False
    #: What holds its job, until a worker resumes it.
    held: str = ""
    purged: bool = False
    provider_id: str = ""
    target_id: str = ""
    reason: str = ""
    detail: str = ""
    #: What the provider reported after it was sent.
    delivered_at: int | None = None
    bounced_at: int | None = None
    bounce: str = ""
    complained_at: int | None = None
    complaint: str = ""
    #: The reports that were recorded, by the provider's names of them.
    reports: tuple[str, ...] = ()
    #: The version of the event with the journalled call of the open intent; 0: none is journalled.
    journal: int = 0

    @property
    def job_id(self) -> str:
        """The id of the job of the operation that was opened last."""
        if self.own:
            return own_job_id(self.tenant, self.flow, self.id, self.dispatch_version)
        return job_id(self.id, self.dispatch_version)

    @property
    def is_terminal(self) -> bool:
        """Whether no automatic step follows."""
        return self.phase == "ended"

    @property
    def waits_for_a_person(self) -> bool:
        """The outcome is unknown, and only a person can resolve it."""
        return self.phase == "unknown" and self.due_at is None

    @property
    def attempted_from(self) -> int:
        """No attempt of this intent can have begun before this."""
        return (
            max(self.created_at, self.due_at or 0)
            if self.first_attempt_at is None
            else self.first_attempt_at
        )

    @property
    def wants(self) -> Work | None:
        """What the job of this request should do, if it should have one."""
        if self.phase == "open":
            return "execute"
        if self.phase == "unknown" and self.due_at is not None:
            return "execute" if self.policy == "resend" else "reconcile"
        return None

    @property
    def job_kind(self) -> JobKind | None:
        """The kind of job that should exist for this request, if any."""
        wants = self.wants
        return wants if wants is None or self.operation == "send" else f"{wants}-{self.operation}"

    @property
    def is_far(self) -> bool:
        """Whether the next job is due beyond what a queue may hold."""
        return self.due_at is not None and self.due_at - self.updated_at > QUEUE_HORIZON_MS

    @property
    def sweep_at(self) -> int | None:
        """When the sweeper has to look at this request; None: a job does, or nothing does."""
        if self.phase == "ended":
            return None
        if self.phase == "unknown":
            return self.due_at if self.wants == "reconcile" or self.is_far else None
        if self.due_at is None or not self.is_far:
            return self.expires_at
        return self.due_at if self.expires_at is None else min(self.due_at, self.expires_at)
