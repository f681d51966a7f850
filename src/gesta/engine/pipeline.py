"""All stations of one process, wired and kept running: the pipeline on one screen."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial

from gesta.domain.ids import REQUEST_ID
from gesta.engine.environment import Environment
from gesta.engine.process_roles import Work
from gesta.errors import NotFound
from gesta.flows import webhook
from gesta.flows.flow import Flow
from gesta.intake.admission import Admission
from gesta.intake.batch_throttle import BatchThrottle
from gesta.intake.flow_checks import FlowChecks
from gesta.intake.outbox_drain import OutboxDrain
from gesta.intake.provider_reports import Reach, Reports, report_address
from gesta.intake.submit import Intake
from gesta.maintenance.retention import Retention, removed_text
from gesta.maintenance.sweeper import Sweeper
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import Tokens
from gesta.outbound.smtp import Mail
from gesta.ports.leases import Role
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
from gesta.runtime.component import Components, Process
from gesta.runtime.telemetry import Telemetry
from gesta.security.cursors import Cursors
from gesta.security.envelope_encryption import IDENTITY, KeyRing
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import SubjectKeys
from gesta.subscriptions.alerts import Alerting, Alerts, Destination
from gesta.subscriptions.handlers import Subscription, Subscriptions
from gesta.subscriptions.log_consumer import Log, LogConsumer
from gesta.subscriptions.status_webhooks import StatusWebhooks
from gesta.tenants.api_keys import ApiKeys
from gesta.tenants.config_writer import ConfigWriter
from gesta.tenants.flow_records import Records
from gesta.tenants.pause_control import PauseControl
from gesta.tenants.pauses import declared_digests
from gesta.tenants.suppression import SuppressionAudit
from gesta.tenants.templates.templates import Templates
from gesta.worker.attempt import Attempts
from gesta.worker.deadlines import Deadlines
from gesta.worker.external.component import component
from gesta.worker.late_cancellation import LateCancellation
from gesta.worker.pool import Pool
from gesta.worker.release import JobRelease

#: When the drain is over, stations may end for so long, and what is left be projected for so long;
#: then the engine stops without them.
END_SECONDS = 5.0
FINISH_SECONDS = 1.0


class Pipeline:
    """ask → intake → event store → projector → queue → worker → flow → recorder → event store."""

    def __init__(
        self,
        flows: Mapping[str, Flow],
        environment: Environment,
        key_ring: KeyRing,
        identity_secret: bytes,
        work: Work,
        subscriptions: Sequence[Subscription] = (),
        retention_days: int | None = None,
    ) -> None:
        stores = environment.stores
        runtime = OnClock(environment.runtime, stores.now_ms)
        self.flows, self.environment, self.runtime = flows, environment, runtime
        ids, self.telemetry = Ids(runtime), Telemetry()
        telemetry = self.telemetry
        #: The owner is for people who ask which process holds a lease.
        self.owner = owner = f"{platform.node()}:{os.getpid()}:{ids.new()}"
        self.process = process = Process(runtime, ids, telemetry, owner)
        self.components = Components(process)
        self.loader = Loader(stores.events, stores.read_model)
        self.identity = identity = KeyedDigests(identity_secret)
        self.cursors = Cursors(identity_secret)
        declared = declared_digests(flows.values(), environment.reference, identity)
        self.config_writer = ConfigWriter(
            flows=flows,
            declared=declared,
            events=stores.events,
            key_ring=key_ring,
            runtime=runtime,
            reference=environment.reference,
            renderer=environment.renderer,
        )
        self.config = self.config_writer.cache
        self.keys = ApiKeys(
            vault=stores.vault,
            key_ring=key_ring,
            secret=identity_secret,
            writer=self.config_writer,
            runtime=runtime,
        )
        self.subjects = SubjectKeys(stores.vault, key_ring, identity, runtime)
        self.rebuild = Rebuild(stores, process)
        self.pausing = PauseControl(self.config_writer, stores.queue)
        self.projector = Projector(stores, process)
        writing, store_retry = InlineProjection(stores, self.projector), StoreRetry(runtime)
        self.recorder = Recorder(
            writing.record, self.loader, store_retry, runtime, stores.commit_size
        )
        templates = partial(Templates, renderer=environment.renderer)
        admission = Admission(stores, self.projector.place, environment.settings, runtime)
        self.intake = Intake(
            flows,
            writing.append,
            admission,
            BatchThrottle(runtime, self.projector.not_far_behind),
            identity,
            self.subjects,
            FlowChecks(self.config, templates),
            runtime,
            ids,
            stores.commit_size,
        )
        deadlines, http = Deadlines(runtime), partial(Http, environment.transport, runtime)
        tokens = Tokens(stores.token_buckets, runtime)
        late_cancellation = LateCancellation(flows, self.loader, self.recorder)
        job_release = JobRelease(self.recorder, self.pausing, late_cancellation, runtime, telemetry)
        #: What flows keep about people beside their requests.
        self.records = Records(stores.vault, key_ring, self.subjects, identity, runtime)
        self.suppressing = SuppressionAudit(self.records, self.config_writer, runtime)
        attempts = Attempts(
            flows,
            self.recorder,
            http,
            templates,
            tokens,
            job_release,
            deadlines,
            runtime,
            telemetry,
            Mail(environment.mail, runtime),
            self.records,
            report_address(environment.settings),
        )
        self.pool = Pool(
            work.taken_of(flows),
            stores.queue,
            stores.read_model,
            self.loader,
            self.config,
            self.subjects,
            self.pausing,
            late_cancellation,
            attempts,
            deadlines,
            store_retry,
            runtime,
            ids,
            telemetry,
        )
        #: The door for those who execute flows that are declared external.
        self.external, lease_expiry = component(
            flows,
            stores.queue,
            self.loader,
            self.recorder,
            self.subjects,
            self.pausing,
            late_cancellation,
            self.pool,
            identity,
            runtime,
            ids,
            telemetry,
        )
        self.retention_days = retention_days
        self.sweep = Sweeper(
            flows=flows,
            stores=stores,
            loader=self.loader,
            recorder=self.recorder,
            pausing=self.pausing,
            retention=Retention(retention_days, flows=flows, stores=stores, process=process),
            lease_expiry=lease_expiry,
            process=process,
        )
        self.subscriptions = self._beside(subscriptions)
        self.waiters = Waiters()
        self.projector.listen(self.waiters.saved)
        self._choose(work, deadlines)
        self.is_stopping = False

    def _beside(self, subscriptions: Sequence[Subscription]) -> Subscriptions:
        """What providers tell; and who is told: handlers of programs, tenants' endpoints, whoever
        runs gesta.
        """
        stores, settings, runtime, telemetry = (
            self.environment.stores,
            self.environment.settings,
            self.runtime,
            self.telemetry,
        )
        self.reports = Reports(
            flows=self.flows,
            config=self.config,
            loader=self.loader,
            recorder=self.recorder,
            records=self.records,
            reach=Reach(
                report_address(settings), settings.sns_url or "", self.environment.transport
            ),
            runtime=runtime,
            telemetry=telemetry,
        )
        log = Log(
            events=stores.events,
            views=stores.read_model,
            runtime=runtime,
            telemetry=telemetry,
            owner=self.owner,
        )
        #: None where nobody is to be told.
        self.telling: StatusWebhooks | None = None
        self.alerts: Alerts | None = None
        own: list[LogConsumer] = []
        if webhook.NAME in self.flows:
            flow = self.flows[webhook.NAME]
            self.telling = StatusWebhooks(
                log=log, flow=flow, intake=self.intake, config=self.config
            )
            own.append(self.telling)
        if settings.alerts_to is not None:
            self.alerts = Alerts(
                Destination(settings.alerts_to, settings.tenant),
                flows=self.flows,
                intake=self.intake,
                config=self.config,
                records=self.records,
                runtime=runtime,
                telemetry=telemetry,
                process=self.owner,
            )
            if self.alerts.can_be_sent:
                telemetry.alarm = self.alerts.met
                own.append(Alerting(self.alerts, log))
        return Subscriptions(subscriptions, own, log)

    @classmethod
    async def build(
        cls,
        flows: Mapping[str, Flow],
        environment: Environment,
        work: Work,
        subscriptions: Sequence[Subscription] = (),
        retention_days: int | None = None,
    ) -> Pipeline:
        """Open the vault, which proves the master key, and wire the stations."""
        key_ring = KeyRing(environment.stores.vault, environment.master, environment.runtime)
        pipeline = cls(
            flows,
            environment,
            key_ring,
            await key_ring.installation_secret(IDENTITY[1]),
            work,
            subscriptions,
            retention_days,
        )
        if environment.built is not None:
            environment.built(pipeline)
        return pipeline

    def not_found(self, request_id: str, otherwise: str = "") -> NotFound:
        if not REQUEST_ID.fullmatch(request_id):
            return NotFound(
                "request",
                request_id,
                "; it is no request's id. What a key led to: `engine.find(key=KEY)`, GET"
                " /v1/requests?key=KEY, `gesta show KEY`",
            )
        removed = removed_text(request_id, self.retention_days, self.runtime.now_ms())
        return NotFound("request", request_id, removed or otherwise)

    @property
    def is_running(self) -> bool:
        return bool(self.components.tasks)

    def _choose(self, work: Work, deadlines: Deadlines) -> None:
        """The stations that this process runs."""
        runs = self.components.runs
        #: Station → what it plays by lease, where that is so.
        self._roles: dict[str, Role | Partitions] = {}
        stores = self.environment.stores
        if "projector" in work.parts:
            partitions = self.projector.partitions
            runs |= {"projector": self.projector.run, **self.subscriptions.components()}
            self._roles |= {"projector": partitions, **self.subscriptions.roles()}
            if stores.undispatched is not None:
                runs["relay"] = Relay(stores, partitions, self.process).run
            if stores.outbox is not None:
                runs["outbox"] = OutboxDrain(
                    outbox=stores.outbox,
                    intake=self.intake,
                    flows=self.flows,
                    is_leader=partitions.is_first_ours,
                    runtime=self.runtime,
                    telemetry=self.telemetry,
                ).run
        if {"projector", "worker"} <= work.parts and stores.undispatched is None:
            self.projector.eager_dispatch = self.pool.eager_dispatcher
        if "worker" in work.parts:
            runs |= {"worker": self.pool.run, "queue": self.pool.listen}
            runs |= {"lease": self.pool.lease.keep, "deadlines": deadlines.run}
        if work.parts and self.alerts is not None and self.alerts.can_be_sent:
            runs["alerts"] = self.alerts.run
        if "sweeper" in work.parts:
            runs["sweep"], self._roles["sweep"] = self.sweep.run, self.sweep.role

    def not_begun(self) -> list[str]:
        """Stations that the store has not answered yet since this process started."""
        waiting = [name for name, role in self._roles.items() if not role.is_known]
        return (
            [*waiting, "worker"]
            if "worker" in self.components.runs and not self.pool.has_begun
            else waiting
        )

    async def stop(self) -> None:
        """Stop taking and telling, let attempts and handlers end and be recorded and projected,
        then close.

        A role goes to another process as soon as we have no more use for it: nobody waits for its
        lease to end.
        """
        was_running, self.is_stopping = self.is_running, True
        until = self.runtime.monotonic() + self.environment.drain_seconds
        last = until + END_SECONDS
        await self.external.stop(last)
        self.subscriptions.stop()
        self.pool.eager_dispatcher.close()
        await self.components.end(["sweep", "worker"], last)
        if was_running and "sweep" in self._roles:
            await self.sweep.role.give_up()
        await self.pool.stop(self.environment.drain_seconds)
        await self.subscriptions.drain(until)
        await self.components.end(list(self.components.tasks), last)
        if was_running and "projector" in self._roles:
            await self.subscriptions.finish()
            await self.projector.finish(max(last, self.runtime.monotonic()) + FINISH_SECONDS)
        await self.environment.transport.close()
        await self.environment.renderer.close()
        await self.environment.mail.close()
        await self.environment.stores.close()
