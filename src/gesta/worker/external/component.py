"""The parts of handing out, wired: the door for those who execute, and what the sweep does about
work that nobody reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from gesta.flows.flow import Flow
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder
from gesta.runtime.clock import Ids, Runtime
from gesta.runtime.telemetry import Telemetry
from gesta.security.keyed_digests import KeyedDigests
from gesta.security.subject_keys import SubjectKeys
from gesta.tenants.pause_control import PauseControl
from gesta.worker.external.external import External
from gesta.worker.external.lease_expiry import LeaseExpiry
from gesta.worker.external.lease_tokens import LeaseTokens
from gesta.worker.external.leasing import ExternalLeasing
from gesta.worker.external.long_poll import Waiting
from gesta.worker.late_cancellation import LateCancellation
from gesta.worker.pool import Pool
from gesta.worker.preflight import Guard


def component(
    flows: Mapping[str, Flow],
    stores: Stores,
    loader: Loader,
    recorder: Recorder,
    subjects: SubjectKeys,
    pausing: PauseControl,
    late_cancellation: LateCancellation,
    pool: Pool,
    identity: KeyedDigests,
    runtime: Runtime,
    ids: Ids,
    telemetry: Telemetry,
) -> tuple[External, LeaseExpiry]:
    guard, lease_tokens = Guard(recorder, runtime), LeaseTokens(identity)
    external_leasing = ExternalLeasing(
        flows,
        stores,
        loader,
        recorder,
        subjects,
        pausing,
        late_cancellation,
        guard,
        pool,
        lease_tokens,
        runtime,
        telemetry,
    )
    waiting = Waiting(stores, runtime, telemetry)
    external = External(
        flows,
        stores,
        loader,
        recorder,
        subjects,
        external_leasing,
        lease_tokens,
        waiting,
        runtime,
        telemetry,
    )
    return external, LeaseExpiry(flows, stores, loader, guard, ids, telemetry)
