"""Release of a job without an attempt: nothing was sent, and the request is as it was before the
job was leased.

attempt.py passes on what the executor raised (flows/deferrals.py). A postponed job is released
until it is due. A job whose credential was refused is held with all others that use the credential.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from gesta.domain.commands import Cancel, Command, CommandRefused, HoldRequest, Postpone
from gesta.domain.outcome import Retry
from gesta.domain.state import QUEUE_HORIZON_MS
from gesta.errors import BadScope, Busy, Fenced, StoreError
from gesta.flows.deferrals import ConfigMissing, CredentialRefused, Postponed
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Hold, LeasedJob, Release, Settlement
from gesta.ports.read_model import Key, View, key_of
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, drop_job
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.component import Process
from gesta.tenants.pause_control import PauseControl
from gesta.tenants.pauses import REASON_LENGTH_MAX, Scope, checked
from gesta.worker.outcome_sanitizer import code_of, discreet, has_private_texts, sound

if TYPE_CHECKING:
    from gesta.worker.attempt import Running


class LateCancellation:
    """Ends requests that were cancelled while their jobs were being released or held: no attempt of
    them ends, so no attempt would notice.
    """

    def __init__(self, flows: Mapping[str, Flow], loader: Loader, recorder: Recorder) -> None:
        self._flows, self._loader, self._recorder = flows, loader, recorder

    async def look(self, keys: Sequence[Key]) -> None:
        """Call after the jobs were settled: a later cancellation finds the jobs free, so one of the
        two always ends the request.
        """
        found, _ = await self._loader.load(keys)
        for view in found.values():
            state = view.state
            if not state.cancel_requested or state.wants != "execute":
                continue
            rules = self._flows[state.flow].rules
            if not state.in_doubt or rules.cancels_unknown:
                # Refused: another has ended it meanwhile, or it is unknown.
                with suppress(CommandRefused):
                    await self._recorder.apply(
                        view, Cancel(), rules, drop_job, causation_id=state.id
                    )


class JobRelease:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        recorder: Recorder,
        pausing: PauseControl,
        late_cancellation: LateCancellation,
        store_retry: StoreRetry,
        process: Process,
    ) -> None:
        self._flows, self._recorder, self._pausing = flows, recorder, pausing
        self._store_retry, self.late_cancellation = store_retry, late_cancellation
        self._runtime, self._telemetry = process.runtime, process.telemetry

    async def postponed(self, run: Running, postponed: Postponed) -> None:
        """Release the job until then, at most for as long as a queue may hold a job."""
        seconds = postponed.after_seconds
        # A flow may give any number, also infinity.
        wait_ms = (
            min(max(0, round(seconds * 1000)), QUEUE_HORIZON_MS)
            if isfinite(seconds)
            else QUEUE_HORIZON_MS
        )
        job = run.leased.job
        self._telemetry.postponed(run.flow.name)
        until_ms = self._runtime.now_ms() + wait_ms
        await self._settle(run, Postpone(), Release(job.id, run.leased.token, until_ms))

    async def refused(self, run: Running, refused: CredentialRefused) -> None:
        """Hold it with all other jobs that use the credential."""
        leased, reason = run.leased, _reason(refused, run)
        tenant, version = leased.job.tenant, run.config.version_of(refused.credential)
        # Retries while the store is unavailable: while the lease is renewed, no other worker takes
        # the job.
        scope, is_new = await self._store_retry.insist(
            partial(
                self._pausing.refuse,
                tenant,
                refused.credential,
                version,
                reason,
                missing=isinstance(refused, ConfigMissing),
            ),
            failed=partial(self._telemetry.store_failed, "worker"),
        )
        if is_new:
            report = (
                self._telemetry.config_missing
                if isinstance(refused, ConfigMissing)
                else self._telemetry.credential_refused
            )
            report(run.log_context, run.flow.name, refused.credential, reason)
        if scope is None or leased.is_possibly_executed:
            # It has changed meanwhile; or an earlier lease was lost, which a hold would remember
            # although its outcome is recorded by now.
            await self._settle(run, Postpone(), Release(leased.job.id, leased.token, 0))
            return
        hold = Hold(leased.job.id, leased.token, str(scope))
        await self._settle(run, HoldRequest(hold.scope), hold)
        try:
            # Between the pause and the hold, the pause may have ended or the request may have been
            # cancelled.
            await self._pausing.let_go([(tenant, str(scope))])
            await self.late_cancellation.look([key_of(run.view.state)])
        except (StoreError, Busy) as error:
            # The sweeper releases what is held and not paused; a cancellation is applied then.
            self._telemetry.store_failed("worker", error)

    async def hold(self, leased: LeasedJob, hold: Hold, view: View, *, insist: bool) -> None:
        """Hold a job that a pause covers, and record that.

        If the tenant was copied to another store, only the job is held: the tenant's pause lasts as
        long as its fence, and until then the job must not occupy a slot.
        """
        try:
            await self._recorder.apply(
                view,
                HoldRequest(hold.scope),
                self._flows[view.state.flow].rules,
                lambda _, __: hold,
                causation_id=leased.job.id,
                insist=insist,
            )
        except Fenced:
            await self._recorder.settle(hold, insist=insist)

    async def _settle(self, run: Running, command: Command, settlement: Settlement) -> None:
        await self._recorder.apply(
            run.view,
            command,
            run.flow.rules,
            lambda _, __: settlement,
            causation_id=run.leased.job.id,
            insist=True,
        )


def unusable(refused: CredentialRefused, tenant: str) -> Retry | None:
    """The outcome where the flow names an invalid credential; None: it is valid."""
    try:
        checked(Scope(None, tenant, refused.credential))
    except BadScope as error:
        return Retry("credential_refused", f"the flow returns an invalid name: {error}")
    return None


def _reason(refused: CredentialRefused, run: Running) -> str:
    """Why the credential is held, without secrets and personal data.

    It is stored with the credential and not with the request, so where texts of the flow are
    encrypted it is the code alone.
    """
    outcome = sound(Retry(refused.reason, refused.detail))
    outcome = discreet(outcome, run.payload, run.config.opened)
    assert isinstance(outcome, Retry)
    # The engine itself composes the text about missing config.
    if has_private_texts(run.flow) and not isinstance(refused, ConfigMissing):
        return code_of(outcome, run.flow.reasons)
    text = f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason
    return "".join(character for character in text if character.isprintable())[:REASON_LENGTH_MAX]
