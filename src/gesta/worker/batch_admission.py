"""Admission of a batch of leased jobs, for the pool and for external leasing.

One call loads the requests of all jobs and the config of their tenants. Paused jobs are held. A job
whose request is not there yet is released for a moment, and quarantined after some tries. A job
whose request cannot be read is quarantined, and the rest goes on. The caller starts what is left.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from gesta.domain.stream_names import INSTALLATION, config_stream
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.ports.job_queue import Ack, Hold, LeasedJob, Release, Settlement
from gesta.ports.read_model import Key, Quarantined, View
from gesta.ports.stores import Stores
from gesta.requests.loader import Loader
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.component import STORE_PAUSE_SECONDS, Process
from gesta.tenants.config import ConfigCache
from gesta.tenants.pause_control import PauseControl
from gesta.worker.release import JobRelease

#: How often, and how far apart, a missing request is looked up: if queue and log are on different
#: servers, a job may arrive before the events that it points to.
MISSING_TRIES = 5
MISSING_PAUSE_MS = 500
#: How many missing requests are remembered; another process may find them.
MISSING_KEPT = 10_000
NOTHING_MADE: Mapping[str, View] = {}


class Paused(NamedTuple):
    """A job that a pause covers. `view`: its request; None where that is missing."""

    leased: LeasedJob
    hold: Hold
    view: View | None


class Admitted(NamedTuple):
    """A batch, sorted by what is to be done with each job."""

    ready: list[tuple[LeasedJob, View]]
    paused: list[Paused]
    missing: list[LeasedJob]
    unreadable: list[tuple[LeasedJob, Exception]]


class BatchAdmission:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        config: ConfigCache,
        pausing: PauseControl,
        job_release: JobRelease,
        store_retry: StoreRetry,
        process: Process,
    ) -> None:
        self._flows, self._loader, self._config, self._pausing = flows, loader, config, pausing
        self._queue, self._read_model = stores.queue, stores.read_model
        self._job_release, self._store_retry = job_release, store_retry
        self._runtime, self._telemetry = process.runtime, process.telemetry
        #: Job → how often its request was missing.
        self._missing: dict[str, int] = {}

    async def admit(
        self, leased: list[LeasedJob], made: Mapping[str, View] = NOTHING_MADE, *, insist: bool
    ) -> Admitted:
        """Load the requests and sort the jobs.

        `made`: requests that were created in the commit that leased their jobs, by job id.
        `insist`: wait for the store, however long it is unavailable; otherwise raise StoreError.
        """
        try:
            found = await self._load(leased, made, insist=insist)
            holds = self._pausing.holds_of(leased, found, self._flows)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- one cannot be read: each by itself
            if len(leased) == 1:
                return Admitted([], [], [], [(leased[0], error)])
            parts = [await self.admit([one], insist=insist) for one in leased]
            fields = zip(*parts, strict=True)
            return Admitted(*([one for part in field for one in part] for field in fields))
        paused: list[Paused] = []
        missing: list[LeasedJob] = []
        if holds:
            paused = [
                Paused(one, holds[one.job.id], found.get(one.job.id))
                for one in leased
                if one.job.id in holds
            ]
            leased = [one for one in leased if one.job.id not in holds]
        self._telemetry.leased(leased, self._runtime.now_ms())
        ready = [(one, view) for one in leased if (view := found.get(one.job.id)) is not None]
        if len(ready) < len(leased):
            missing = [one for one in leased if one.job.id not in found]
        if self._missing:
            for one, _ in ready:
                self._missing.pop(one.job.id, None)
        return Admitted(ready, paused, missing, [])

    async def hold(self, paused: Sequence[Paused], *, insist: bool) -> None:
        """Hold jobs that a pause covers."""
        holds = [one.hold for one in paused if one.view is None]
        if holds:
            await self._do(lambda: self._queue.settle(holds), holds, insist=insist)
        # Together, so that one commit takes many.
        holding = [
            spawn(
                self._job_release.hold(one.leased, one.hold, one.view, insist=insist), "gesta-hold"
            )
            for one in paused
            if one.view is not None
        ]
        try:
            for task in holding:
                await task
        finally:
            for task in holding:
                task.cancel()
        # The pause may have ended after we read it and before these jobs were held, so check again.
        scopes = [(one.leased.job.tenant, one.hold.scope) for one in paused]
        await self._do(lambda: self._pausing.let_go(scopes), insist=insist)
        # A request may have been cancelled while we held its job.
        keys = [_key(one.leased) for one in paused]
        await self._do(lambda: self._job_release.late_cancellation.look(keys), insist=insist)

    async def postpone(self, leased: LeasedJob, *, insist: bool) -> None:
        """Release a job whose request is missing; quarantine it after the last try."""
        job = leased.job
        tries = self._missing.pop(job.id, 0) + 1
        if tries >= MISSING_TRIES:
            error = LookupError("no event of this request")
            await self.quarantine(leased, error, "request_not_found")
            return
        if len(self._missing) >= MISSING_KEPT:
            self._missing.clear()
        self._missing[job.id] = tries
        release = Release(job.id, leased.token, self._runtime.now_ms() + MISSING_PAUSE_MS)
        await self._do(lambda: self._queue.settle([release]), [release], insist=insist)

    async def quarantine(self, leased: LeasedJob, error: Exception, reason: str = "") -> None:
        """Take a job that cannot be processed out of the queue, and record that."""
        job = leased.job
        await self._note(
            Quarantined("job", job.tenant, job.id, job.dispatch_version, reason, 0), error
        )
        await self.settle([Ack(job.id, leased.token)])

    async def release(self, leased: Sequence[LeasedJob]) -> None:
        """Nothing has been called, and no attempt is used up."""
        # A possibly executed job stays leased until its lease ends: if it were released, it would
        # look clean.
        releases = [
            Release(one.job.id, one.token, 0) for one in leased if not one.is_possibly_executed
        ]
        if releases:
            await self.settle(releases)

    async def release_declared(self) -> None:
        """Requests may be held because a provider refused the secret that an earlier program
        declared. The secret of this program is to be tried.
        """
        if self._config.pauses.declared:
            await self._pausing.let_go_of_all()

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Settle jobs without an attempt, however long the store is unavailable: while the lease is
        renewed, no other worker takes them.
        """
        await self._do(lambda: self._queue.settle(settlements), settlements, insist=True)

    async def _load(
        self, leased: list[LeasedJob], made: Mapping[str, View], *, insist: bool
    ) -> Mapping[str, View]:
        """The requests by the ids of their jobs; the config of their tenants is brought up to date
        in the same call.
        """
        unknown = [one for one in leased if one.job.id not in made]
        while True:
            keys = [_key(one) for one in unknown]
            wanted = [
                (config_stream(tenant), self._config.version(tenant))
                for tenant in {INSTALLATION, *(one.job.tenant for one in leased)}
            ]
            try:
                found, changes = await self._loader.load(keys, wanted)
            except StoreError as error:
                if not insist:
                    raise
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
                # Much can have happened to them meanwhile.
                unknown, made = leased, {}
            else:
                for recorded, reason in self._config.apply(changes):
                    await self._note(
                        Quarantined("event", "", recorded.stream, recorded.version, "", 0), reason
                    )
                if not unknown:
                    return made
                by_job = {
                    one.job.id: found[key]
                    for one, key in zip(unknown, keys, strict=True)
                    if key in found
                }
                return {**made, **by_job}

    async def _note(self, quarantined: Quarantined, error: Exception) -> None:
        self._telemetry.quarantined(
            quarantined.what, quarantined.stream, quarantined.version, error
        )
        noted = replace(
            quarantined,
            error=quarantined.error or type(error).__name__,
            at_ms=self._runtime.now_ms(),
        )
        await self._do(lambda: self._read_model.save([], [noted]), insist=True)

    async def _do(
        self,
        act: Callable[[], Awaitable[object]],
        settlements: Sequence[Settlement] = (),
        *,
        insist: bool,
    ) -> None:
        if insist:
            log = partial(self._telemetry.store_failed, "worker")
            await self._store_retry.insist(act, settlements, log)
        else:
            await act()


def _key(leased: LeasedJob) -> Key:
    return leased.job.flow, leased.job.tenant, leased.job.request_id
