"""The parts of handing out, wired: the door for those who execute, and what the sweep does about
work that nobody reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from gesta.flows.flow import Flow
from gesta.ports.event_store import EventStore
from gesta.ports.job_queue import JobQueue
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder
from gesta.runtime.clock import Ids, Runtime
from gesta.runtime.telemetry import Telemetry
from gesta.security.keyed_digests import Identity
from gesta.security.subject_keys import Subjects
from gesta.tenants.pause_control import Pausing
from gesta.worker.external.external import External
from gesta.worker.external.lease_expiry import Lapses
from gesta.worker.external.lease_tokens import Tickets
from gesta.worker.external.leasing import HandingOut
from gesta.worker.external.long_poll import Waiting
from gesta.worker.late_cancellation import CalledBack
from gesta.worker.pool import Pool
from gesta.worker.preflight import Guard


def station(
    flows: Mapping[str, Flow],
    queue: JobQueue,
    events: EventStore,
    loader: Loader,
    recorder: Recorder,
    subjects: Subjects,
    pausing: Pausing,
    called_back: CalledBack,
    pool: Pool,
    identity: Identity,
    runtime: Runtime,
    ids: Ids,
    telemetry: Telemetry,
) -> tuple[External, Lapses]:
    guard, tickets = Guard(recorder, runtime), Tickets(identity)
    handing_out = HandingOut(
        flows,
        queue,
        loader,
        recorder,
        subjects,
        pausing,
        called_back,
        guard,
        pool,
        tickets,
        runtime,
        telemetry,
    )
    waiting = Waiting(queue, runtime, telemetry)
    external = External(
        flows,
        queue,
        events,
        loader,
        recorder,
        subjects,
        handing_out,
        tickets,
        waiting,
        runtime,
        telemetry,
    )
    return external, Lapses(flows, queue, loader, guard, ids, telemetry)
