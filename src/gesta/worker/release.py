"""Station 6 of 7, when nothing was sent and no attempt is spent: the job goes back, and its request
is as if it had not been taken.

Receives what the executor raised (unspent.py) from attempt.py; settles the job through recorder.py.
"""

from __future__ import annotations

from math import isfinite

from gesta.domain.commands import Postpone, Rules
from gesta.domain.outcome import Retry
from gesta.domain.state import QUEUE_HORIZON_MS
from gesta.errors import BadScope, Busy, StoreError
from gesta.flows.deferrals import CredentialRefused, Postponed
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Hold, LeasedJob, Release, Settlement
from gesta.ports.read_model import View, key_of
from gesta.requests.recorder import Applied, Recorder
from gesta.runtime.clock import Runtime, sleep
from gesta.runtime.telemetry import LogContext, Telemetry
from gesta.tenants.config import TenantConfig
from gesta.tenants.pause_control import PauseControl
from gesta.tenants.pauses import REASON_LENGTH_MAX, Scope, checked
from gesta.worker.late_cancellation import LateCancellation
from gesta.worker.outcome_sanitizer import discreet, sound

STORE_PAUSE_SECONDS = 1.0


class JobRelease:
    def __init__(
        self,
        recorder: Recorder,
        pausing: PauseControl,
        late_cancellation: LateCancellation,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._recorder, self._pausing, self._late_cancellation = (
            recorder,
            pausing,
            late_cancellation,
        )
        self._runtime, self._telemetry = runtime, telemetry

    async def postponed(
        self, leased: LeasedJob, view: View, flow: Flow, postponed: Postponed
    ) -> None:
        """Until then.

        Longer than a queue may hold a job nobody waits in it: then it is looked at once more.
        """
        seconds = postponed.after_seconds
        # A flow may say anything, also what is no number of seconds.
        wait_ms = (
            min(max(0, round(seconds * 1000)), QUEUE_HORIZON_MS)
            if isfinite(seconds)
            else QUEUE_HORIZON_MS
        )
        self._telemetry.postponed(flow.name)
        await self._settle(
            leased,
            view,
            flow.rules,
            Release(leased.job.id, leased.token, self._runtime.now_ms() + wait_ms),
        )

    async def refused(
        self,
        leased: LeasedJob,
        view: View,
        flow: Flow,
        refused: CredentialRefused,
        payload: object,
        config: TenantConfig,
    ) -> None:
        """Hold it with everything else that uses the credential."""
        tenant, told = leased.job.tenant, _told(refused, payload, config)
        scope, is_new = await self._pause(
            tenant, refused.credential, config.version_of(refused.credential), told
        )
        if is_new:
            line = LogContext(flow, leased, payload, view.state.correlation_id)
            self._telemetry.credential_refused(line, flow.name, refused.credential, told)
        if scope is None or leased.is_possibly_executed:
            # It has changed meanwhile; or an earlier take was lost, which a hold would remember
            # although its end is on record by now.
            await self._settle(leased, view, flow.rules, Release(leased.job.id, leased.token, 0))
            return
        await self._settle(leased, view, flow.rules, Hold(leased.job.id, leased.token, str(scope)))
        try:
            # What came between the pause and the hold: that it ended, or that somebody called the
            # request back while the attempt ran.
            await self._pausing.let_go([(tenant, str(scope))])
            await self._late_cancellation.look([key_of(view.state)])
        except (StoreError, Busy) as error:
            # The sweep lets go of what is held and not paused; who called it back is heard when it
            # goes on.
            self._telemetry.store_failed("worker", error)

    async def _pause(
        self, tenant: str, credential: str, version: int, told: str
    ) -> tuple[Scope | None, bool]:
        """However long the store is out of reach: while the lease is renewed, nobody else would
        take the job.
        """
        while True:
            try:
                return await self._pausing.refuse(tenant, credential, version, told)
            except StoreError as error:
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)

    async def _settle(
        self, leased: LeasedJob, view: View, rules: Rules, settlement: Settlement
    ) -> Applied:
        return await self._recorder.apply(
            view,
            Postpone(),
            rules,
            lambda _, __: settlement,
            causation_id=leased.job.id,
            insist=True,
        )


def unusable(refused: CredentialRefused, tenant: str) -> Retry | None:
    """What an attempt comes to whose flow names a credential that cannot be one; None: it can."""
    try:
        checked(Scope(None, tenant, refused.credential))
    except BadScope as error:
        return Retry("credential_refused", f"the flow names it wrongly: {error}")
    return None


def _told(refused: CredentialRefused, payload: object, config: TenantConfig) -> str:
    """Why, for those who find it held: without secrets and personal data, like every detail that is
    stored.
    """
    outcome = discreet(sound(Retry(refused.reason, refused.detail)), payload, config.opened)
    assert isinstance(outcome, Retry)
    text = f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason
    return "".join(character for character in text if character.isprintable())[:REASON_LENGTH_MAX]
