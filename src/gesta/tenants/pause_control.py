"""Pause and resume: first the event, then the jobs. The sweeper repairs a crash in between.

Operators pause what they want. The engine pauses a credential that a provider refused, or config
that is missing, until it changes.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from gesta.domain.events import Actor
from gesta.domain.stream_names import INSTALLATION
from gesta.errors import NotFound
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Hold, JobHolds, LeasedJob
from gesta.ports.read_model import View
from gesta.tenants.config_writer import ENGINE, ConfigWriter
from gesta.tenants.pauses import NOT_SET, Pause, Paused, Refusal, Resumed, Scope, credential_of

#: Jobs released in one commit, so that a long pause does not end in one long commit.
UNHOLD_BATCH = 1_000
#: Programs that declare different secrets for one credential, at most.
DECLARED_MAX = 8


class PauseControl:
    def __init__(self, writer: ConfigWriter, holds: JobHolds) -> None:
        self._config, self._writer, self._holds = writer.cache, writer, holds
        # Hundreds of attempts may be refused at once: the first writes, the others find its pause.
        self._refusing = asyncio.Lock()

    async def pause(self, scope: Scope, reason: str, actor: Actor | None) -> Pause:
        """Pause this scope: no attempt begins, running attempts finish.

        An existing pause with the same reason stays as it is.
        """

        async def decide() -> Paused | None:
            standing = self._config.pauses.get(scope)
            is_same = standing is not None and standing.reason == reason
            return None if is_same else Paused(scope.flow, scope.credential, reason)

        await self._writer.change(scope.owner, decide, actor)
        found = self._config.pauses.get(scope)
        assert found is not None
        return found

    async def resume(self, scope: Scope, actor: Actor | None) -> int:
        """End a pause of a person or the engine; returns how many jobs were held.

        Raises NotFound.
        """
        refused = Scope(scope.flow, scope.tenant, scope.credential, is_refused=True)

        async def decide() -> Resumed:
            if self._config.pauses.get(scope) is None and self._config.pauses.get(refused) is None:
                raise NotFound("pause", str(scope))
            return Resumed(scope.flow, scope.credential)

        await self._writer.change(scope.owner, decide, actor)
        held = await self._unhold(str(scope))
        return held + (await self._unhold(str(refused)) if scope.credential is not None else 0)

    async def refuse(
        self, tenant: str, credential: str, version: int, reason: str, *, missing: bool = False
    ) -> tuple[Scope | None, bool]:
        """Pause the requests that use a refused credential; returns the scope, and if it is new.

        `version` of the entity was refused; 0: the program's own. No scope: the credential has
        changed since, so the request may be tried again at once.
        """
        scope, pauses = Scope(None, tenant, credential, is_refused=True), self._config.pauses
        # A process that declares the credential itself does not lack it: it tries.
        absent = NOT_SET if missing else None
        ours = pauses.declared.get(credential, absent) if version == 0 else None
        is_changed = False

        async def decide() -> Paused | None:
            nonlocal is_changed
            is_changed = self._config.of(tenant).version_of(credential) != version
            standing = pauses.get(scope)
            if is_changed or _concerns(standing, version, ours):
                return None
            known = (
                () if standing is None or standing.refusal is None else standing.refusal.declared
            )
            declared = known if ours is None else (*known, ours)[-DECLARED_MAX:]
            return Paused(None, credential, reason, Refusal(version, declared, missing))

        async with self._refusing:
            if _concerns(pauses.get(scope), version, ours):
                return scope, False
            is_new = await self._writer.change(tenant, decide, ENGINE)
            return None if is_changed else scope, is_new

    async def changed(self, tenant: str, credential: str) -> int:
        """An entity was put or deleted: release the jobs that the engine held for it."""
        return await self.let_go([(tenant, str(Scope(None, tenant, credential, is_refused=True)))])

    async def paused(self, tenant: str | None) -> list[Pause]:
        """The pauses of all tenants together and of this tenant, or of tenants with held jobs."""
        tenants = {one.tenant for one in await self._holds.held()} if tenant is None else {tenant}
        owners = [INSTALLATION, *sorted(tenants)]
        for owner in owners:
            await self._config.refresh(owner)
        return [pause for owner in owners for pause in self._config.pauses.of(owner)]

    def pause_of(self, view: View, flow: Flow | None) -> Pause | None:
        """The pause that holds a request, as far as this process has read."""
        if view.state.wants is None:
            return None
        credential = (
            _no_credential if view.state.test else partial(credential_of, flow, view.payload)
        )
        return self._config.pauses.covering(view.state.tenant, view.state.flow, credential)

    def held_elsewhere(self, view: View, flow: Flow | None) -> Pause | None:
        """The engine's own pause under which another process holds a request, although this process
        declares the credential itself and would execute it.
        """
        used = credential_of(flow, view.payload) if view.state.held else None
        if used is None:
            return None
        return self._config.pauses.get(Scope(None, view.state.tenant, used, is_refused=True))

    def holds_of(
        self, leased: Iterable[LeasedJob], found: Mapping[str, View], flows: Mapping[str, Flow]
    ) -> dict[str, Hold]:
        """Job id → the hold of each leased job that is paused. `found` is by job id, too."""
        holds: dict[str, Hold] = {}
        if self._config.pauses.is_empty:
            return holds
        for one in leased:
            job, view = one.job, found.get(one.job.id)
            if view is not None and view.state.cancel_requested and view.state.wants == "execute":
                # It is being cancelled and need not wait for that.
                continue
            payload = b"" if view is None else view.payload
            # A test request does not use the tenant's credential.
            is_test = view is not None and view.state.test
            credential = (
                _no_credential if is_test else partial(credential_of, flows[job.flow], payload)
            )
            pause = self._config.pauses.covering(job.tenant, job.flow, credential)
            if pause is not None:
                holds[job.id] = Hold(job.id, one.token, str(pause.scope))
        return holds

    async def let_go(self, held: Iterable[tuple[str, str]]) -> int:
        """Release the jobs of these (tenant, scope) that are no longer paused; returns how many.

        They are left by a crash between the two steps of `resume`, or by a worker that had read
        the pause before it ended.
        """
        await self._config.refresh(INSTALLATION)
        global_scopes = {str(pause.scope) for pause in self._config.pauses.of(INSTALLATION)}
        count = 0
        for tenant, scope in {
            (tenant, scope) for tenant, scope in held if scope not in global_scopes
        }:
            await self._config.refresh(tenant)
            await self._end_outdated_refusals(tenant)
            if scope not in {str(pause.scope) for pause in self._config.pauses.of(tenant)}:
                count += await self._unhold(scope)
        return count

    async def let_go_of_all(self) -> int:
        held = await self._holds.held()
        return await self.let_go((one.tenant, one.scope) for one in held) if held else 0

    async def _end_outdated_refusals(self, tenant: str) -> None:
        """End the refusal of a secret that other programs declared: this process has another."""
        for pause in self._config.pauses.of(tenant):
            if not self._config.pauses.is_ours(pause):
                event = Resumed(None, pause.scope.credential, refusal=True)
                # If the stream has moved, the next process decides again.
                await self._writer.append(tenant, self._config.version(tenant), event, ENGINE)
                await self._config.refresh(tenant)

    async def _unhold(self, scope: str) -> int:
        total = 0
        while count := await self._holds.unhold(scope, UNHOLD_BATCH):
            total += count
            if count < UNHOLD_BATCH:
                break
        return total


def _no_credential() -> None:
    """The credential of a test request."""


def _concerns(pause: Pause | None, version: int, ours: str | None) -> bool:
    """Whether a pause is about exactly this form of a credential."""
    refusal = None if pause is None else pause.refusal
    return (
        refusal is not None
        and refusal.version == version
        and (ours is None or ours in refusal.declared)
    )
