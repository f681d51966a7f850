"""Queues of a real Valkey server under the contract suites."""

from gesta.errors import GestaError
from gesta.ports.stores import QueuePorts
from gesta.testing.contracts import harness


class Harness(harness.Harness):
    """One prefix for one test."""

    capabilities = frozenset()

    async def open_ports(self) -> QueuePorts:
        raise GestaError("no contract runs on Redis yet")
