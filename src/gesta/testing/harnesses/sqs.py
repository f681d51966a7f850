"""Queues of moto's server, a fake of Amazon SQS, under the contract suites.

The server runs in the test process, so that the test can move its clock.
"""

import logging
from pathlib import Path
from typing import ClassVar

from gesta.ports.stores import QueuePorts
from gesta.runtime.clock import ManualRuntime, SystemRuntime
from gesta.stores.sqs import open_queue_at
from gesta.stores.sqs.address import address_of
from gesta.testing.contracts import harness
from gesta.testing.moto_server import REGION, moto_with_clock


class SharedServer:
    """Started by the first test that asks; its clock is the one of the test that runs."""

    _url: ClassVar[str | None] = None
    runtime: ClassVar[ManualRuntime]

    @classmethod
    def url(cls, runtime: ManualRuntime) -> str:
        cls.runtime = runtime
        if cls._url is None:
            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            cls._url = moto_with_clock(cls._now_ms)
        return cls._url

    @classmethod
    def _now_ms(cls) -> int:
        return cls.runtime.now_ms()


class Harness(harness.Harness):
    """One prefix for one test. `durable`: it outlives the process that uses it."""

    capabilities = frozenset({"queue", "durable"})

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._prefix = f"t{SystemRuntime().random_bytes(8).hex()}"

    async def open_ports(self) -> QueuePorts:
        endpoint = SharedServer.url(self.runtime)
        # The lease of a contract is the whole timeout.
        address = address_of(f"sqs://{REGION}/{self._prefix}?visibility=1&endpoint={endpoint}")
        return await open_queue_at(
            address, self.runtime, is_polling=False, credentials=("AKIDTEST", "secret")
        )
