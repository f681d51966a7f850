"""Events in a protocol double of KurrentDB under the contract suites; with GESTA_TEST_KURRENTDB, in
the real server of that URL.
"""

from contextlib import suppress
from dataclasses import replace

from gesta.ports.stores import EventPorts
from gesta.runtime.settings import resolve_reference
from gesta.stores.kurrentdb import open_events_at
from gesta.stores.kurrentdb.connection import address_of
from gesta.testing.contracts import harness
from gesta.testing.kurrentdb_double import KurrentDBDouble


class Harness(harness.Harness):
    """One double for one test, which keeps its log in the folder of the test."""

    capabilities = frozenset({"events", "key_claims", "fences", "durable"})

    async def open_ports(self) -> EventPorts:
        with suppress(KeyError):
            real = resolve_reference("env:GESTA_TEST_KURRENTDB")
            return await open_events_at(address_of(real), self.runtime, settle_seconds=0)
        double = await KurrentDBDouble(self.folder).__aenter__()
        ports = await open_events_at(address_of(double.url), self.runtime, settle_seconds=0)

        async def close() -> None:
            await ports.close()
            await double.__aexit__(None, None, None)

        return replace(ports, close=close)
