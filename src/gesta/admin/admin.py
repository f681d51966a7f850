"""`engine.admin`: what operators see and decide, one method for each command."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import msgspec

from gesta.admin.bulk import BulkRun, resume
from gesta.admin.config_admin import ConfigAdmin
from gesta.api_types.bulk import Bulk, BulkAction, BulkProgress
from gesta.api_types.decisions import DeadLetter
from gesta.domain.events import Actor
from gesta.domain.ids import TENANT, TENANT_RULE
from gesta.domain.stream_names import checkpoint_of
from gesta.engine.request import Request
from gesta.errors import BadInput, InvalidRequest
from gesta.flows.channels import unknown_flow
from gesta.flows.payment.gateway import Gateway, Window
from gesta.flows.payment.transaction_flow import gateways_of
from gesta.flows.validation import actor_errors, tenant_errors
from gesta.intake.submit import Accepted
from gesta.intake.submit_options import subject_errors
from gesta.payments.reconcile import Report, window_errors
from gesta.ports.job_queue import HeldJob
from gesta.ports.read_model import Quarantined
from gesta.projector.partitions import projected_position, projects
from gesta.projector.rebuild import Progress
from gesta.runtime.redaction import scrub
from gesta.tenants import suppression
from gesta.tenants.api_keys import ApiKey
from gesta.tenants.audit_log import Change, trail
from gesta.tenants.config import HandlerForgotten, SubjectErased
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.pauses import EVERYTHING, Pause, Scope, checked
from gesta.tenants.suppression import BY_HAND, Addresses, Entry

#: Entries of the audit log in one page, at most.
PAGE = 200


class Listener(msgspec.Struct, frozen=True):
    """A consumer of the log and its progress."""

    name: str
    #: Events that it has not read yet; an upper bound, because positions may have gaps.
    behind: int
    #: Whether a live process has its role.
    is_held: bool
    #: Why its handler fails, and since when.
    error: str
    failed_at_ms: int | None


class Admin(ConfigAdmin):
    async def is_worked_on(self) -> bool:
        """Whether another live process works on the store, or any process projects."""
        now, leases = self._pipeline.runtime.now_ms(), self._stores.leases
        return any(projects(role) and role.is_held(now) for role in await leases.roles()) or any(
            one.id != self._pipeline.owner and {"worker", "projector"} & {*one.roles}
            for one in await leases.processes()
        )

    async def unseen(self, limit: int = 1_000) -> int:
        """How many events are not projected yet, counted up to `limit`."""
        stores = self._stores
        return len(
            await stores.events.follow(
                await projected_position(stores.checkpoints, stores.partitions), limit
            )
        )

    async def quarantined(self, tenant: str | None = None, limit: int = 100) -> list[Quarantined]:
        """Events and jobs that could not be processed."""
        return await self._views.quarantined(tenant, limit)

    def request(self, letter: DeadLetter) -> Request:
        return Request(self._pipeline, Accepted(letter.flow, letter.tenant, letter.id, "duplicate"))

    def bulk(
        self, asked: Bulk, *, tenant: str = "default", actor: Actor | None = None
    ) -> AsyncGenerator[BulkProgress, None]:
        """Decide about every request that fits a filter; reports the progress as it goes.

        For instance `bulk(Bulk(action="redrive", reason="no_paper", dead_letters=True))`, first
        with `dry_run=True`; `from gesta.client import Bulk`. The engine must be running, also if
        it was made with `work=False`. Iterate over the reports with `async for`: the run starts
        with the first one. Closing the iterator stops it between two requests; `resume_bulk`
        continues it.
        """
        return BulkRun(self._pipeline, tenant=tenant, asked=asked, actor=actor).run()

    async def resume_bulk(
        self,
        run_id: int,
        action: BulkAction,
        *,
        dead_letters: bool = False,
        rate: float | None = None,
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> AsyncGenerator[BulkProgress, None]:
        """Continue a run that was stopped; `run_id` is `BulkProgress.id`.

        Raises InvalidRequest unless the run was started with this action and, with `dead_letters`,
        over dead letters only; NotFound; BulkFinished.
        """
        run = await resume(
            self._pipeline,
            tenant=tenant,
            run_id=run_id,
            action=action,
            dead_letters=dead_letters,
            rate=rate,
            actor=actor,
        )
        async for progress in run.run():
            yield progress

    async def held(self) -> list[HeldJob]:
        return await self._stores.job_holds.held()

    async def erase(
        self, subject: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> int:
        """Destroy the keys of a data subject and log that; returns how many there were.

        Safe to repeat, also after a crash.
        """
        errors = subject_errors(subject, tenant) | actor_errors(actor)
        if errors:
            raise BadInput("; ".join(f"{name}: {error}" for name, error in errors.items()))
        # Keys first: after the log entry a reader could still fetch a key that exists.
        destroyed = await self._pipeline.subjects.destroy(tenant, subject)
        if destroyed is None:
            return 0
        digest, count = destroyed
        await self._pipeline.config_writer.note(tenant, SubjectErased(digest), actor)
        return count

    async def suppress(
        self,
        flow: str,
        address: str,
        *,
        reason: str = "by hand",
        source: str = BY_HAND,
        tenant: str = "default",
        actor: Actor | None = None,
    ) -> Entry:
        """Put an address on the flow's suppression list; it stays there after an erasure."""
        return await self._pipeline.suppressing.suppress(
            tenant, flow, self._addresses(flow), address, reason, actor, source
        )

    async def unsuppress(
        self, flow: str, address: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> bool:
        """Remove an address from the suppression list. False: it was not on it."""
        return await self._pipeline.suppressing.unsuppress(
            tenant, flow, self._addresses(flow), address, actor
        )

    async def unsuppress_entry(
        self, flow: str, entry_id: str, *, tenant: str = "default", actor: Actor | None = None
    ) -> None:
        """Remove an entry by the id that the list shows. Raises NotFound."""
        await self._pipeline.suppressing.unsuppress_entry(
            tenant, flow, self._addresses(flow), entry_id, actor
        )

    async def suppressed(self, flow: str, address: str, *, tenant: str = "default") -> Entry | None:
        """The entry of an address; None: it is not suppressed."""
        return await suppression.entry_of(self._records(tenant), self._addresses(flow), address)

    async def list_suppressed(
        self, flow: str, *, after: str = "", limit: int = 50, tenant: str = "default"
    ) -> tuple[list[Entry], str | None]:
        """A page of the list with masked addresses, and where the next page begins."""
        return await suppression.listed(self._records(tenant), self._addresses(flow), after, limit)

    def _records(self, tenant: str) -> TenantRecords:
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise BadInput(f"tenant: {TENANT_RULE}")
        return self._pipeline.records.of(tenant)

    def _addresses(self, flow: str) -> Addresses:
        found = self._pipeline.flows.get(flow)
        if found is None:
            raise unknown_flow(flow, self._pipeline.flows)
        if found.addresses is None:
            raise BadInput(f"flow: {flow} has no suppression list")
        return found.addresses

    async def handlers(self) -> list[Listener]:
        """Every consumer of the log: handlers of programs, and the engine's own."""
        stores, now = self._stores, self._pipeline.runtime.now_ms()
        held = {role.name for role in await self._stores.leases.roles() if role.is_held(now)}
        end, prefix = await stores.events.end(), checkpoint_of("")
        return [
            Listener(
                one.name.removeprefix(prefix),
                max(0, end - one.position),
                one.name in held,
                one.error,
                one.failed_at_ms,
            )
            for one in await self._stores.checkpoints.checkpoints()
            if one.name.startswith(prefix)
        ]

    async def forget_handler(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete the checkpoint of a handler; a program that declares it starts anew.

        Handlers belong to the installation, so this is logged with the tenant of the settings.
        """
        _check_actor(actor)
        owner = self._pipeline.environment.settings.tenant
        # The log entry first: after a crash there may be one too many, never one too few.
        await self._pipeline.config_writer.note(owner, HandlerForgotten(name), actor)
        await self._stores.checkpoints.forget(checkpoint_of(name))

    async def rebuild(self, progress: Progress = lambda _done, _total: None) -> int:
        """Rebuild all views from the events while other processes work; returns how many events.

        Nothing is executed again.
        """
        return await self._pipeline.rebuild.run(progress)

    async def pause(
        self,
        *,
        flow: str | None = None,
        tenant: str | None = None,
        credential: str | None = None,
        reason: str = "",
        actor: Actor | None = None,
    ) -> Pause:
        """Pause a flow, a tenant, a flow of a tenant, or a tenant's credential (`kind/code`).

        Requests are accepted and wait. Running attempts finish. Times to live run on. Workers
        apply it to the next jobs that they lease.
        """
        scope = checked(Scope(flow, tenant, credential), reason)
        _check_actor(actor)
        return await self._pipeline.pausing.pause(scope, scrub(reason), actor)

    async def resume(
        self,
        *,
        flow: str | None = None,
        tenant: str | None = None,
        credential: str | None = None,
        actor: Actor | None = None,
    ) -> int:
        """End a pause; returns how many jobs were held. Raises NotFound."""
        scope = checked(Scope(flow, tenant, credential))
        _check_actor(actor)
        return await self._pipeline.pausing.resume(scope, actor)

    async def pause_everything(self, reason: str = "", actor: Actor | None = None) -> Pause:
        """Pause every tenant."""
        checked(Scope(tenant="default"), reason)
        _check_actor(actor)
        return await self._pipeline.pausing.pause(EVERYTHING, scrub(reason), actor)

    async def resume_everything(self, actor: Actor | None = None) -> int:
        """End that pause; returns how many jobs it held. Other pauses stay. Raises NotFound."""
        _check_actor(actor)
        return await self._pipeline.pausing.resume(EVERYTHING, actor)

    async def reconcile(
        self,
        gateway: str,
        since: datetime,
        until: datetime,
        *,
        tenant: str = "default",
        gateways: Sequence[Gateway] | None = None,
        actor: Actor | None = None,
    ) -> Report:
        """Compare the ledger of an account at a gateway with the record, and correct the record.

        `gateway` is the code of a payment.gateway config. `gateways`: by default those of gesta and
        of the flows of the program.
        Repeat it, also with overlapping windows: what is corrected once is not corrected again.
        """
        _check_actor(actor)
        if errors := window_errors(since, until) | tenant_errors(tenant):
            raise InvalidRequest("reconcile", errors)
        window = Window(round(since.timestamp() * 1000), round(until.timestamp() * 1000))
        return await self._pipeline.reconciler.run(
            gateway,
            window,
            gateways=gateways_of(self._pipeline.flows.values()) if gateways is None else gateways,
            tenant=tenant,
            actor=actor,
        )

    async def paused(self, tenant: str | None = None) -> list[Pause]:
        """The pauses of all tenants together and of this tenant, or of tenants with held jobs."""
        return await self._pipeline.pausing.paused(tenant)

    async def create_key(
        self,
        *,
        name: str,
        scopes: Sequence[str] = ("read", "submit"),
        expires_at: datetime | None = None,
        test: bool = False,
        tenant: str = "default",
        actor: Actor,
    ) -> tuple[ApiKey, str]:
        """A new API key and its text, which cannot be shown again. A `test` key reaches only the
        sandbox.
        """
        return await self._pipeline.keys.create(
            tenant, name=name, scopes=scopes, expires_at=expires_at, test=test, actor=actor
        )

    async def list_keys(self, tenant: str = "default") -> list[ApiKey]:
        """The tenant's API keys, newest first, without their texts."""
        return await self._pipeline.keys.listed(tenant)

    async def revoke_key(self, key_id: str, *, tenant: str = "default", actor: Actor) -> ApiKey:
        """Revoke an API key; every process refuses it within a second. Safe to repeat."""
        return await self._pipeline.keys.revoke(tenant, key_id, actor)

    async def audit(
        self, tenant: str = "default", before: int | None = None, limit: int = 50
    ) -> list[Change]:
        """The audit log of a tenant, newest first; `before` a version continues a listing."""
        return await trail(self._stores.events, tenant, before, min(max(limit, 1), PAGE))


def _check_actor(actor: Actor | None) -> None:
    # A program may pass anything, and it is stored in events.
    if errors := actor_errors(actor):
        raise InvalidRequest("config", errors)
