"""Checks before any call whether there is still something to do, and whether it may be done now.

It decides from the head of the stream. Own attempts and external workers use the same checks.
"""

from functools import partial
from typing import Literal

from msgspec.structs import replace

from gesta.domain.commands import Cancel, Command, CommandRefused, Expire, Lose, Rules
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import QUEUE_HORIZON_MS, State
from gesta.ports.job_queue import Ack, LeasedJob, Release, Settlement
from gesta.ports.read_model import View
from gesta.requests.recorder import Applied, Recorder, Settle
from gesta.runtime.clock import Runtime

#: execute, reconcile: go on. lose: an earlier lease has no recorded end. expire: too late, or the
#: provider has forgotten our key. cancel: cancelled while an attempt ran. wait: not yet due.
#: ignore: nothing to do. copy: an attempt has begun under another copy of the job.
Finding = Literal["execute", "reconcile", "lose", "expire", "cancel", "wait", "ignore", "copy"]

#: Reason of an attempt without an outcome → what happened, in words.
LOST_DETAILS = {
    "lease_lost": "its worker died or lost the store during the attempt",
    "no_report": "the lease of the external worker ended without a report",
}
#: A job that is due by the queue's clock but not by ours is checked again after this time: another
#: worker's clock may be right.
CLOCK_PAUSE_MS = 1_000


def examine(state: State, leased: LeasedJob, now_ms: int, rules: Rules) -> Finding:
    """What to do with a job, given what its request is now."""
    job = leased.job
    wants = state.wants
    if wants is None or state.dispatch_version != job.dispatch_version:
        # The request has ended, was opened again, or is unknown until a person decides: the job is
        # outdated.
        return "ignore"
    if wants == "reconcile":
        # A look-up changes nothing at the provider, so it can be repeated.
        return "reconcile" if (state.due_at or 0) <= now_ms else "wait"
    if state.due_at is not None and state.due_at > now_ms and not _began(state.due_at, leased):
        return "wait"
    if leased.may_be_copy and state.started is not None and not leased.is_possibly_executed:
        # The copy under which it began stays in the queue until the attempt has a recorded end. If
        # its worker died, that copy comes back, possibly executed.
        return "copy"
    if state.started is not None or (leased.is_possibly_executed and not leased.may_be_copy):
        return "lose"
    has_limit = state.expires_at is not None or state.in_doubt or state.journal
    if has_limit and lifecycle_of(state.flow).decide(state, Expire(now_ms), rules):
        return "expire"
    return "cancel" if state.cancel_requested else "execute"


def _began(due_ms: int, leased: LeasedJob) -> bool:
    """Whether an attempt that was due then may have begun, although it is not yet due by our clock,
    which may be slow.

    The queue had the job ready for that time before it was taken and lost. If the job was ready
    earlier, it was lost after an attempt whose recorded end set the later due time.
    """
    return leased.is_possibly_executed and leased.available_ms >= due_ms


class Guard:
    """Settles jobs that are not to be executed."""

    def __init__(self, recorder: Recorder, runtime: Runtime) -> None:
        self._recorder, self._runtime = recorder, runtime

    async def deal_with(
        self,
        finding: Finding,
        leased: LeasedJob,
        view: View,
        rules: Rules,
        *,
        lost: str = "lease_lost",
        insist: bool = True,
    ) -> tuple[View, Finding] | None:
        """Record what follows and settle the job. Returns the request and what to do with it, if it
        is to be executed after all.

        `lost` is the reason that is recorded for an attempt without an outcome. `insist`: see
        Recorder.apply.
        """
        if finding == "lose":
            # It was leased when it was due, whatever our clock says.
            lose = self._lose(view, lost)
            view = (await self._apply(leased, view, lose, rules, _keep(leased), insist=insist)).view
            # With `resend` the lost attempt may be repeated immediately; otherwise the request is
            # now unknown.
            finding = examine(view.state, _clean(leased), self._runtime.now_ms(), rules)
        match finding:
            case "execute" | "reconcile":
                return view, finding
            case "expire":
                await self._apply(
                    leased,
                    view,
                    Expire(self._runtime.now_ms()),
                    rules,
                    settle_of(leased),
                    insist=insist,
                )
            case "cancel":
                await self._cancel(leased, view, rules, insist=insist)
            case "wait":
                await self._recorder.settle(
                    _not_yet(leased, view.state, self._runtime.now_ms()), insist=insist
                )
            case "copy":
                await self._recorder.settle(Ack(leased.job.id, leased.token), insist=insist)
            case "ignore" | "lose":
                await self._recorder.settle(settled(leased, view.state, view.state), insist=insist)
        return None

    async def expire(self, leased: LeasedJob, view: View, rules: Rules, lost: str) -> None:
        """Record external work that was never reported as unknown, and settle its job, in one
        commit.
        """
        now = self._runtime.now_ms()
        finding = examine(view.state, leased, now, rules)
        if finding == "lose":
            lose = self._lose(view, lost)
            await self._apply(leased, view, lose, rules, settle_of(leased), insist=False)
        else:
            # Its outcome is recorded, and only the job was left.
            await self.deal_with(finding, leased, view, rules, insist=False)

    def _lose(self, view: View, lost: str) -> Lose:
        now, due = self._runtime.now_ms(), view.state.due_at or 0
        return Lose(max(now, due), lost, self._runtime.chance(), LOST_DETAILS.get(lost, ""))

    async def _cancel(self, leased: LeasedJob, view: View, rules: Rules, *, insist: bool) -> None:
        try:
            await self._apply(leased, view, Cancel(), rules, settle_of(leased), insist=insist)
        except CommandRefused:
            # Our lease expired, and another worker has moved the request on.
            state = (await self._recorder.fresh(view, insist=insist)).state
            await self._recorder.settle(settled(leased, state, state), insist=insist)

    async def _apply(
        self,
        leased: LeasedJob,
        view: View,
        command: Command,
        rules: Rules,
        settle: Settle,
        *,
        insist: bool,
    ) -> Applied:
        return await self._recorder.apply(
            view, command, rules, settle, causation_id=leased.job.id, insist=insist
        )


def settle_of(leased: LeasedJob) -> Settle:
    """What becomes of the job once the request is in a given state: kept for the next attempt if
    that is soon, else removed.
    """
    return partial(settled, leased)


def settled(leased: LeasedJob, _: State, state: State) -> Settlement:
    if state.is_terminal:
        return Ack(leased.job.id, leased.token)
    still_ours = (
        state.dispatch_version == leased.job.dispatch_version and state.job_kind == leased.job.kind
    )
    # A job that the sweeper put when it became due stays, because it is put only once.
    is_near = not state.is_far or (state.due_at or 0) - leased.available_ms <= QUEUE_HORIZON_MS
    if still_ours and is_near:
        return Release(leased.job.id, leased.token, state.due_at or 0)
    return Ack(leased.job.id, leased.token)


def _not_yet(leased: LeasedJob, state: State, now_ms: int) -> Settlement | None:
    """Release the job until it is due.

    By the queue's clock it is already due: if it were released until then, it would be taken again
    immediately, and again.
    """
    settlement = settled(leased, state, state)
    if isinstance(settlement, Release):
        left_ms = min(CLOCK_PAUSE_MS, max(0, settlement.due_ms - now_ms))
        return replace(settlement, due_ms=max(settlement.due_ms, leased.available_ms + left_ms))
    return settlement


def _keep(leased: LeasedJob) -> Settle:
    """Hold the job if the request may be executed now; otherwise as usual."""

    def settle(before: State, state: State) -> Settlement | None:
        settlement = settled(leased, before, state)
        return None if isinstance(settlement, Release) else settlement

    return settle


def _clean(leased: LeasedJob) -> LeasedJob:
    """The same job once its earlier take has a recorded end."""
    return replace(leased, takes=1, job=replace(leased.job, possibly_executed=False))
