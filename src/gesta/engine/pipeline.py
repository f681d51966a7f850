"""All components of one process, wired and kept running.

`Pipeline.__init__` is the pipeline on one screen; one method wires each part of it. `_choose` says
which components this process runs, `stop` in which order they end.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from gesta.domain.ids import REQUEST_ID
from gesta.engine.environment import Environment
from gesta.engine.process_roles import Work
from gesta.errors import NotFound
from gesta.flows import webhook
from gesta.flows.flow import Flow
from gesta.intake.admission import Admission
from gesta.intake.batch_throttle import BatchThrottle
from gesta.intake.flow_checks import FlowChecks
from gesta.intake.inbound.inbox import Inbox
from gesta.intake.outbox_drain import OutboxDrain
from gesta.intake.provider_reports import Reach, Reports, report_address
from gesta.intake.submit import Intake
from gesta.maintenance.retention import Retention, removed_text
from gesta.maintenance.schedules import Schedule, Schedules
from gesta.maintenance.store_metrics import StoreMetrics
from gesta.maintenance.sweeper import Chore, Sweeper
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import Tokens
from gesta.outbound.smtp import Mail
from gesta.ports.leases import LiveProcess, Presence, Role
from gesta.ports.stores import Stores, refuse_missing
from gesta.projector.inline import InlineProjection
from gesta.projector.job_relay import Relay
from gesta.projector.partitions import Partitions
from gesta.projector.projector import Projector
from gesta.projector.rebuild import Rebuild
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder
from gesta.requests.store_retry import StoreRetry
from gesta.requests.waiters import Waiters
from gesta.runtime.clock import Ids, OnClock
from gesta.runtime.component import Components, Process, repeat
from gesta.runtime.telemetry import Telemetry
from gesta.sagas.orders import Orders
from gesta.sagas.run import SagaRuns
from gesta.sagas.wake_up import WakeUps
from gesta.security.call_journal import CallJournal
from gesta.security.cursors import Cursors
from gesta.security.envelope_encryption import IDENTITY, KeyRing
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import SubjectKeys
from gesta.subscriptions.alerts import AlertDestination, Alerting, Alerts
from gesta.subscriptions.handlers import Subscription, Subscriptions
from gesta.subscriptions.log_consumer import Log, LogConsumer
from gesta.subscriptions.on_demand import OnDemandConsumer
from gesta.subscriptions.status_webhooks import StatusWebhooks
from gesta.tenants.api_keys import ApiKeys
from gesta.tenants.config_writer import ConfigWriter
from gesta.tenants.flow_records import Records
from gesta.tenants.pause_control import PauseControl
from gesta.tenants.pauses import declared_digests
from gesta.tenants.suppression import SuppressionAudit
from gesta.tenants.templates.templates import Templates
from gesta.worker.attempt import Attempts, ExecutorTools
from gesta.worker.batch_admission import BatchAdmission
from gesta.worker.deadlines import Deadlines
from gesta.worker.external.external import External
from gesta.worker.external.leasing import LeaseExpiry
from gesta.worker.pool import Pool
from gesta.worker.release import JobRelease, LateCancellation

if TYPE_CHECKING:
    # Most engines never use these: they are imported where the settings or flows ask for them.
    from gesta.intake.adoption import Adoption
    from gesta.intake.inbound.boundary import Consumer
    from gesta.intake.inbound.boundary_dead_letters import BoundaryDeadLetters
    from gesta.payments.reconcile import Reconciler

#: With these flows, a ticket is answered in the thread of the Slack message that asked for it.
REPLYING = frozenset({"ticket.backlog", "notification.slack"})
#: After the drain: how long components may take to end, and how long the remaining events may take
#: to be projected. Then the engine stops anyway.
END_SECONDS = 5.0
FINISH_SECONDS = 1.0
#: How often the sweeper looks for external leases without a report, for held jobs whose pause has
#: ended, and at the whole store.
EXPIRED_PERIOD_SECONDS, HELD_PERIOD_SECONDS, STORE_PERIOD_SECONDS = 2.0, 10.0, 60.0
#: How many token buckets are removed each time, at most.
BUCKETS = 1_000


class Pipeline:
    """ask → intake → event store → projector → queue → worker → flow → recorder → event store."""

    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        environment: Environment,
        key_ring: KeyRing,
        identity_secret: bytes,
        work: Work,
        subscriptions: Sequence[Subscription],
        retention: timedelta | None,
    ) -> None:
        self._sagas = SagaRuns(flows)
        self.flows = _journalled(self._sagas.flows, environment.stores)
        self.environment, self.retention = environment, retention
        self.runtime = OnClock(environment.runtime, environment.stores.now_ms)
        self.telemetry, ids = Telemetry(), Ids(self.runtime)
        self.owner = f"{platform.node()}:{os.getpid()}:{ids.new()}"
        self.process = Process(self.runtime, ids, self.telemetry, self.owner)
        self.is_stopping = False
        self._wire_tenants(key_ring, identity_secret)
        self._wire_log()
        self._wire_intake(work)
        self._wire_worker(work)
        self._wire_adoption(work)
        self._wire_sweeper()
        self._wire_subscriptions(subscriptions)
        self._choose(work)

    def _wire_tenants(self, key_ring: KeyRing, identity_secret: bytes) -> None:
        """Config, API keys, keys of data subjects, pauses, the records of flows."""
        environment, runtime = self.environment, self.runtime
        stores = environment.stores
        self.identity = identity = KeyedDigests(identity_secret)
        self.cursors = Cursors(identity_secret)
        self.config_writer = ConfigWriter(
            flows=self.flows,
            declared=declared_digests(self.flows.values(), environment.reference, identity),
            events=stores.events,
            key_ring=key_ring,
            runtime=runtime,
            reference=environment.reference,
            renderer=environment.renderer,
        )
        self.config_writer.disabled = self.telemetry.disabled
        self.config = self.config_writer.cache
        self.keys = ApiKeys(
            vault=stores.vault,
            key_ring=key_ring,
            secret=identity_secret,
            writer=self.config_writer,
            runtime=runtime,
        )
        self.subjects = SubjectKeys(
            vault=stores.vault, key_ring=key_ring, identity=identity, runtime=runtime
        )
        self.pausing = PauseControl(self.config_writer, stores.job_holds)
        #: What flows store about people beside their requests.
        self.records = Records(
            vault=stores.vault,
            key_ring=key_ring,
            subjects=self.subjects,
            identity=identity,
            runtime=runtime,
        )
        self.suppressing = SuppressionAudit(self.records, self.config_writer, runtime)
        self._call_journal = CallJournal(key_ring, stores.events)
        self._templates = partial(Templates, environment.renderer)

    def _wire_log(self) -> None:
        """The projector, and what writes to and reads from the log of requests."""
        stores, process = self.environment.stores, self.process
        self.loader = Loader(stores.events, stores.read_model)
        self.projector, self.rebuild = Projector(stores, process), Rebuild(stores, process)
        self.waiters = Waiters()
        self.projector.listen(self.waiters.saved)
        self._log, self._store_retry = InlineProjection(stores, self.projector), StoreRetry(process)
        self.recorder = Recorder(
            self._log, loader=self.loader, store_retry=self._store_retry, process=process
        )

    def _wire_intake(self, work: Work) -> None:
        stores, settings = self.environment.stores, self.environment.settings
        self.intake = Intake(
            flows=self.flows,
            log=self._log,
            admission=Admission(
                stores, position=self.projector.position, settings=settings, runtime=self.runtime
            ),
            batch_throttle=BatchThrottle(self.runtime, self.projector.not_far_behind),
            identity=self.identity,
            subjects=self.subjects,
            checks=FlowChecks(
                self.config,
                self._templates,
                executed=work.taken_of(self.flows) if "worker" in work.parts else (),
                guard=self.environment.guard,
            ),
            process=self.process,
        )
        self.inbox = Inbox(
            identity=self.identity,
            flows=self.flows,
            config=self.config,
            intake=self.intake,
            loader=self.loader,
            recorder=self.recorder,
            process=self.process,
        )
        self._wire_boundary()
        self.reports = Reports(
            flows=self.flows,
            config=self.config,
            loader=self.loader,
            recorder=self.recorder,
            records=self.records,
            reach=Reach(
                report_address(settings), settings.sns_url or "", self.environment.transport
            ),
            runtime=self.runtime,
            telemetry=self.telemetry,
        )

    def _wire_boundary(self) -> None:
        """Inbound events that pass through a queue, where the settings name one."""
        queue, tenant = self.environment.boundary, self.environment.settings.tenant
        self.boundary_consumer: Consumer | None = None
        self.boundary_dead_letters: BoundaryDeadLetters | None = None
        if queue is not None:
            from gesta.intake.inbound.boundary import Consumer, Publisher
            from gesta.intake.inbound.boundary_dead_letters import BoundaryDeadLetters
            from gesta.intake.inbound.queue_age import QueueAge

            self.inbound_age = QueueAge(self.environment.stores.checkpoints, self.runtime)
            self.inbox.publish = Publisher(queue, self.records, tenant).publish
            self.boundary_consumer = Consumer(
                queue,
                inbox=self.inbox,
                records=self.records,
                tenant=tenant,
                age=self.inbound_age,
                process=self.process,
            )
            self.boundary_dead_letters = BoundaryDeadLetters(
                queue, writer=self.config_writer, tenant=tenant, runtime=self.runtime
            )

    def _wire_worker(self, work: Work) -> None:
        """Attempts of this process, and work that is leased to others."""
        environment, runtime, process = self.environment, self.runtime, self.process
        late_cancellation = LateCancellation(self.flows, self.loader, self.recorder)
        job_release = JobRelease(
            flows=self.flows,
            recorder=self.recorder,
            pausing=self.pausing,
            late_cancellation=late_cancellation,
            store_retry=self._store_retry,
            process=process,
        )
        self.admission = BatchAdmission(
            flows=self.flows,
            stores=environment.stores,
            loader=self.loader,
            config=self.config,
            pausing=self.pausing,
            job_release=job_release,
            store_retry=self._store_retry,
            process=process,
        )
        tools = ExecutorTools(
            http=partial(Http, environment.transport, runtime),
            mail=partial(Mail, environment.mail, runtime),
            tokens=Tokens(environment.stores.token_buckets, runtime),
            templates=self._templates,
            records=self.records,
            report_to=report_address(environment.settings),
            journal=self._call_journal,
            runtime=runtime,
        )
        self._deadlines = Deadlines(runtime)
        attempts = Attempts(
            flows=self.flows,
            config=self.config,
            recorder=self.recorder,
            job_release=job_release,
            deadlines=self._deadlines,
            tools=tools,
            subject_keys=self.subjects,
            process=process,
        )
        self.pool = Pool(
            flows=work.taken_of(self.flows),
            queue=environment.stores.queue,
            admission=self.admission,
            attempts=attempts,
            deadlines=self._deadlines,
            subjects=self.subjects,
            store_retry=self._store_retry,
            process=process,
        )
        self.external = External(
            flows=self.flows,
            stores=environment.stores,
            loader=self.loader,
            recorder=self.recorder,
            subjects=self.subjects,
            admission=self.admission,
            identity=self.identity,
            process=process,
        )

    def _wire_adoption(self, work: Work) -> None:
        """Jobs of other programs, of the flows that this process executes."""
        stores, settings = self.environment.stores, self.environment.settings
        #: None where no other program can put jobs into the queue.
        self.adoption: Adoption | None = None
        if stores.foreign_jobs is not None:
            from gesta.intake.adoption import Adoption
            from gesta.intake.job_contract import JobReading

            flows = work.taken_of(self.flows)
            self.adoption = Adoption(
                jobs=stores.foreign_jobs,
                queue=stores.queue,
                flows=flows,
                reading=JobReading(flows, settings.tenant, settings.enriched_jobs_until),
                intake=self.intake,
                loader=self.loader,
                process=self.process,
            )

    def _wire_sweeper(self) -> None:
        flows, stores, process = self.flows, self.environment.stores, self.process
        retention = Retention(
            self.retention, flows=flows, stores=stores, records=self.records, process=process
        )
        lease_expiry = LeaseExpiry(
            flows=flows,
            stores=stores,
            loader=self.loader,
            recorder=self.recorder,
            process=process,
        )
        boundary = self.environment.boundary
        self.store_metrics = StoreMetrics(
            flows=flows,
            stores=stores,
            pausing=self.pausing,
            inbound=None if boundary is None else (boundary, self.inbound_age),
            process=process,
        )
        self.sweep = Sweeper(
            flows=flows,
            stores=stores,
            loader=self.loader,
            recorder=self.recorder,
            chores=[
                Chore("retention", 0.0, retention.step),
                Chore("lease_expiry", EXPIRED_PERIOD_SECONDS, lease_expiry.step),
                Chore("held_jobs", HELD_PERIOD_SECONDS, self.pausing.let_go_of_all),
                Chore(
                    "token_buckets",
                    STORE_PERIOD_SECONDS,
                    partial(stores.token_buckets.forget, BUCKETS),
                ),
                Chore("store_metrics", STORE_PERIOD_SECONDS, self.store_metrics.step),
            ],
            process=process,
        )

    @cached_property
    def reconciler(self) -> Reconciler:
        from gesta.payments.reconcile import Reconciler

        stores = self.environment.stores
        return Reconciler(
            flows=self.flows,
            events=stores.events,
            read_model=stores.read_model,
            loader=self.loader,
            recorder=self.recorder,
            config=self.config,
            http=partial(Http, self.environment.transport, self.runtime),
            process=self.process,
        )

    def _wire_subscriptions(self, subscriptions: Sequence[Subscription]) -> None:
        """Handlers of programs, webhooks of tenants, alerts for operators."""
        stores, settings = self.environment.stores, self.environment.settings
        log = Log(
            events=stores.events,
            checkpoints=stores.checkpoints,
            leases=stores.leases,
            process=self.process,
        )
        #: None where no webhook flow is declared, and where no address for alerts is set.
        self.status_webhooks: StatusWebhooks | None = None
        self.alerts: Alerts | None = None
        own: list[LogConsumer] = []
        if self._sagas.are_declared:
            wake_ups = WakeUps(log=log, loader=self.loader, recorder=self.recorder)
            self._sagas.connect(
                intake=self.intake,
                loader=self.loader,
                key_claims=stores.key_claims,
                identity=self.identity,
                wake_ups=wake_ups,
                orders=Orders(
                    flows=self.flows,
                    recorder=self.recorder,
                    identity=self.identity,
                    runtime=self.runtime,
                ),
                telemetry=self.telemetry,
            )
            own.append(wake_ups)
        if webhook.NAME in self.flows:
            flow = self.flows[webhook.NAME]
            self.status_webhooks = StatusWebhooks(
                log=log, flow=flow, intake=self.intake, config=self.config
            )
            own.append(self.status_webhooks)
        if self.flows.keys() >= REPLYING:
            from gesta.subscriptions.thread_replies import ThreadReplies

            own.append(
                ThreadReplies(
                    log=log,
                    flows=self.flows,
                    intake=self.intake,
                    config=self.config,
                    loader=self.loader,
                    recorder=self.recorder,
                )
            )
        if settings.alerts_to is not None:
            self.alerts = Alerts(
                AlertDestination(settings.alerts_to, settings.tenant),
                flows=self.flows,
                intake=self.intake,
                config=self.config,
                process=self.process,
            )
            if self.alerts.is_possible:
                self.telemetry.alarm = self.alerts.count
                own.append(Alerting(self.alerts, log, flows=self.flows, config=self.config))
        #: The consumers that start with the first config of some kind.
        self.on_demand = [one for one in own if isinstance(one, OnDemandConsumer)]
        self.subscriptions = Subscriptions(subscriptions, own, log)

    @classmethod
    async def build(
        cls,
        flows: Mapping[str, Flow],
        environment: Environment,
        work: Work,
        subscriptions: Sequence[Subscription] = (),
        retention: timedelta | None = None,
    ) -> Pipeline:
        """Open the vault, which proves the master key, and wire the components."""
        if any(flow.is_external for flow in flows.values()):
            refuse_missing(environment.stores.external_leases)
        key_ring = KeyRing(environment.stores.vault, environment.master, environment.runtime)
        pipeline = cls(
            flows=flows,
            environment=environment,
            key_ring=key_ring,
            identity_secret=await key_ring.installation_secret(IDENTITY[1]),
            work=work,
            subscriptions=subscriptions,
            retention=retention,
        )
        if environment.built is not None:
            environment.built(pipeline)
        return pipeline

    def not_found(self, request_id: str, otherwise: str = "") -> NotFound:
        if not REQUEST_ID.fullmatch(request_id):
            return NotFound(
                "request",
                request_id,
                "; this is not a request id. To find a request by its"
                " key: `engine.find(key=KEY)`, GET"
                " /v1/requests?key=KEY, `gesta show KEY`",
            )
        removed = removed_text(request_id, self.retention, self.runtime.now_ms())
        return NotFound("request", request_id, removed or otherwise)

    @property
    def is_running(self) -> bool:
        return bool(self.components.tasks)

    def _choose(self, work: Work) -> None:
        """The components that this process runs."""
        self.components = Components(self.process)
        runs = self.components.runs
        #: Component → the leader role that it holds by lease, if it has one.
        self._roles: dict[str, Role | Partitions] = {}
        stores = self.environment.stores
        if "projector" in work.parts:
            partitions = self.projector.partitions
            runs |= {"projector": self.projector.run, **self.subscriptions.components()}
            self._roles |= {"projector": partitions, **self.subscriptions.roles()}
            if stores.undispatched is not None:
                relay = Relay(stores, partitions, self.process)
                runs["relay"] = relay.run
                if stores.eager_jobs is not None:
                    self.projector.put_early = relay.put_early
                    relay.expect = self.loader.expect
            if stores.outbox is not None:
                runs["outbox"] = OutboxDrain(
                    outbox=stores.outbox,
                    intake=self.intake,
                    flows=self.flows,
                    is_leader=partitions.is_first_ours,
                    process=self.process,
                ).run
        dispatches = stores.undispatched is None or stores.eager_jobs is not None
        if {"projector", "worker"} <= work.parts and dispatches:
            self.projector.eager_dispatch = self.pool.eager_dispatcher
        if "worker" in work.parts:
            runs |= {"worker": self.pool.run, "queue": self.pool.listen}
            runs |= {"lease": self.pool.lease.keep, "deadlines": self._deadlines.run}
            if self.adoption is not None:
                runs["adoption"] = self.adoption.run
            if self.boundary_consumer is not None:
                runs["inbound"] = self.boundary_consumer.run
        if work.parts and self.alerts is not None and self.alerts.is_possible:
            runs["alerts"] = self.alerts.run
        self.presence = Presence(
            LiveProcess(
                id=self.owner,
                host=platform.node(),
                pid=os.getpid(),
                roles=work.roles,
                version=version("gesta"),
                since_ms=self.runtime.now_ms(),
            ),
            stores.leases,
            self.runtime,
        )
        if work.roles:
            runs["presence"] = partial(repeat, self.presence.step, "presence", self.process)
        if "sweeper" in work.parts:
            runs["sweep"], self._roles["sweep"] = self.sweep.run, self.sweep.role

    def run_schedules(self, schedules: Sequence[Schedule]) -> None:
        """Run these, too, if this process has the role sweeper; before the components start."""
        self.schedules = Schedules(
            schedules, intake=self.intake, stores=self.environment.stores, process=self.process
        )
        if schedules and "sweep" in self.components.runs:
            self.components.runs["schedules"] = self.schedules.run
            self._roles["schedules"] = self.schedules.role

    def not_begun(self) -> list[str]:
        """Components that have had no answer from the store since this process started."""
        waiting = [name for name, role in self._roles.items() if not role.is_known]
        return (
            [*waiting, "worker"]
            if "worker" in self.components.runs and not self.pool.has_begun
            else waiting
        )

    async def stop(self) -> None:
        """Stop leasing jobs and notifying, let attempts and handlers end and be recorded and
        projected, then close.

        Leader roles are released as soon as possible, so that other processes need not wait for
        lease expiry.
        """
        was_running, self.is_stopping = self.is_running, True
        until = self.runtime.monotonic() + self.environment.drain_seconds
        last = until + END_SECONDS
        await self.external.stop(last)
        self.subscriptions.stop()
        self.pool.eager_dispatcher.close()
        await self.components.end(["sweep", "schedules", "worker", "adoption"], last)
        if was_running and "sweep" in self._roles:
            await self.sweep.role.give_up()
        if was_running and "schedules" in self._roles:
            await self.schedules.role.give_up()
        await self.pool.stop(self.environment.drain_seconds)
        if was_running and self.adoption is not None:
            await self.adoption.stop()
        await self.subscriptions.drain(until)
        await self.components.end(list(self.components.tasks), last)
        if was_running and "projector" in self._roles:
            await self.subscriptions.finish()
            await self.projector.finish(max(last, self.runtime.monotonic()) + FINISH_SECONDS)
        if was_running:
            await self.presence.end()
        await self.environment.transport.close()
        await self.environment.renderer.close()
        await self.environment.mail.close()
        if self.environment.boundary is not None:
            await self.environment.boundary.close()
        await self.environment.stores.close()


def _journalled(flows: Mapping[str, Flow], stores: Stores) -> Mapping[str, Flow]:
    """For a queue whose leases a crash may undo: an attempt that must not be repeated blindly is
    journalled as an event before the call. For a queue without UniqueJobs every attempt is: the
    event decides which of two copies of a job is executed.
    """
    if stores.leases_are_durable:
        return flows
    return {
        name: flow
        if flow.rules.on_unknown == "resend" and stores.unique_jobs is not None
        else replace(flow, journal=True)
        for name, flow in flows.items()
    }
