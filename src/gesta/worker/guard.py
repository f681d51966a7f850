"""Before any call: is there still something to do, and may it be done now? Decided from the stream's head, not from the view alone."""

from __future__ import annotations

from typing import Literal

from gesta.domain.commands import Expire, Rules
from gesta.domain.notification import decide
from gesta.domain.operation import State
from gesta.job_queue import Taken

#: execute, ask: go on. lose: an earlier take has no recorded end. expire: too late, or the provider has forgotten our key.
#: cancel: called back while an attempt ran. wait: not yet due. ignore: nothing to do.
Finding = Literal["execute", "ask", "lose", "expire", "cancel", "wait", "ignore"]


def examine(state: State, taken: Taken, now_ms: int, rules: Rules) -> Finding:
    """What to do with a job, given what its request is now."""
    job = taken.job
    if state.is_terminal or state.dispatch_version != job.dispatch_version or state.wants is None:
        # Done already, opened anew since, or standing in unknown until a person decides: this pointer leads nowhere.
        return "ignore"
    if state.wants == "reconcile":
        # A question changes nothing at the provider, so asking twice is harmless.
        return "ask" if (state.due_at or 0) <= now_ms else "wait"
    if state.due_at is not None and state.due_at > now_ms and not _began(state.due_at, taken):
        return "wait"
    if taken.is_suspect or state.started is not None:
        return "lose"
    if (state.expires_at is not None or state.in_doubt) and decide(state, Expire(now_ms), rules):
        return "expire"
    return "cancel" if state.cancel_requested else "execute"


def _began(due_ms: int, taken: Taken) -> bool:
    """Whether an attempt that was due then may have begun, however early it is by our clock: ours may be slow.

    The queue had the job ready for that time before it was taken and lost. One that was ready earlier was lost after an attempt whose
    recorded end set the time that is still to come.
    """
    return taken.is_suspect and taken.available_ms >= due_ms
