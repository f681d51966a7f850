"""Queues of a real Valkey server under the contract suites.

The server is started once per test process and ends with it.
"""

from dataclasses import replace
from pathlib import Path

from gesta.ports.stores import QueuePorts
from gesta.runtime.clock import SystemRuntime
from gesta.stores.redis import open_jobs, open_queue_at
from gesta.stores.redis.connection import address_of
from gesta.testing.contracts import harness
from gesta.testing.server_process import Shared
from gesta.testing.valkey_server import ValkeyCluster, ValkeyServer


class SharedServer(Shared):
    make = ValkeyServer


class SharedCluster(Shared):
    make = ValkeyCluster


class Harness(harness.Harness):
    """One prefix for one test. `durable`: it outlives the process that uses it."""

    capabilities = frozenset(
        {
            "queue",
            "unique_jobs",
            "eager_jobs",
            "job_inspection",
            "job_holds",
            "external_leases",
            "fences",
            "turns",
            "durable",
        }
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._prefix = f"{{t{SystemRuntime().random_bytes(8).hex()}}}"

    async def server(self) -> str:
        return await SharedServer.url()

    async def open_ports(self) -> QueuePorts:
        address = address_of(f"{await self.server()}?prefix={self._prefix}")
        # The time is the test's, not the server's.
        return await open_queue_at(address, self.runtime, self.runtime.now_ms)


class ClusterHarness(Harness):
    """The same on a Cluster."""

    async def server(self) -> str:
        return await SharedCluster.url()


class SharedJobsHarness(Harness):
    """Jobs in the layout that .NET services read."""

    capabilities = frozenset({"job_store", "durable"})
    layout = "shared"

    async def open_ports(self) -> QueuePorts:
        ports = await super().open_ports()
        prefix = self._prefix.strip("{}")
        url = f"{await self.server()}?layout={self.layout}&prefix={prefix}"
        jobs = await open_jobs(url, self.runtime, self.runtime.now_ms)

        async def close() -> None:
            await jobs.close()
            await ports.close()

        return replace(ports, job_store=jobs.job_store, close=close)


class JobsHarness(SharedJobsHarness):
    """Jobs in the layout for services of gesta alone."""

    layout = "cluster"


class ClusterJobsHarness(JobsHarness):
    """The same on a Cluster."""

    async def server(self) -> str:
        return await SharedCluster.url()
