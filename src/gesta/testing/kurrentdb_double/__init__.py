"""A protocol double of KurrentDB for tests: the gRPC calls that gesta makes, on loopback.

It is not KurrentDB. It answers by the published rules (expected versions, idempotent event ids,
`$all`, filtered catch-up subscriptions, tombstones), and keeps its log in a file.

`python -m gesta.testing.kurrentdb_double FOLDER PORT` runs it as a process that can be killed.
"""

from gesta.testing.kurrentdb_double.process import DoubleProcess
from gesta.testing.kurrentdb_double.server import KurrentDBDouble

__all__ = ["DoubleProcess", "KurrentDBDouble"]
