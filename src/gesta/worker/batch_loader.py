"""The requests that jobs point to, loaded in one call for a whole take, and their tenants' config
brought up to date with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gesta.domain.stream_names import INSTALLATION, config_stream
from gesta.errors import StoreError
from gesta.ports.job_queue import LeasedJob
from gesta.ports.read_model import Key, Quarantined, View
from gesta.requests.loader import Loader
from gesta.runtime.clock import Runtime, sleep
from gesta.runtime.telemetry import Telemetry
from gesta.tenants.config import ConfigCache
from gesta.worker.fetch_policy import by_job
from gesta.worker.quarantine import Quarantine

STORE_PAUSE_SECONDS = 1.0


class Requests:
    def __init__(
        self,
        loader: Loader,
        config: ConfigCache,
        quarantine: Quarantine,
        runtime: Runtime,
        telemetry: Telemetry,
    ) -> None:
        self._loader, self._config, self._quarantine, self._runtime, self._telemetry = (
            loader,
            config,
            quarantine,
            runtime,
            telemetry,
        )

    async def load(self, leased: list[LeasedJob], made: Mapping[str, View]) -> Mapping[str, View]:
        """The requests, by the ids of the jobs that point to them.

        Those that were `made` as their jobs were taken are known already.
        """
        unknown = [one for one in leased if one.job.id not in made]
        keys = _keys(unknown)
        while True:
            wanted = [
                (config_stream(tenant), self._config.version(tenant))
                for tenant in {INSTALLATION, *(one.job.tenant for one in leased)}
            ]
            try:
                found, changes = await self._loader.load(keys, wanted)
            except StoreError as error:
                # Held and not called yet: while the lease is renewed, nobody else would do them.
                self._telemetry.store_failed("worker", error)
                await sleep(self._runtime, STORE_PAUSE_SECONDS)
                # Much can have happened to them meanwhile.
                unknown, made = leased, {}
                keys = _keys(unknown)
            else:
                for recorded, fault in self._config.apply(changes):
                    await self._quarantine.note(
                        Quarantined("event", "", recorded.stream, recorded.version, "", 0), fault
                    )
                return {**made, **by_job(unknown, keys, found)} if unknown else made


def _keys(leased: list[LeasedJob]) -> list[Key]:
    return [(one.job.flow, one.job.tenant, one.job.request_id) for one in leased]
