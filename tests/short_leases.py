"""Short leases for programs of tests: a successor does not wait long. The same code runs, and meets
more of its edges.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gesta.engine.engine  # noqa: F401 -- with it, everything that leases is imported
import gesta.ports.leases as roles
import gesta.worker.lease as jobs

#: Constant → its values in the modules that lease jobs and roles.
_LONG = {
    "LEASE_SECONDS": (jobs.LEASE_SECONDS, roles.LEASE_SECONDS),
    "RENEWAL_SECONDS": (jobs.RENEWAL_SECONDS, roles.RENEWAL_SECONDS),
    "MARGIN_SECONDS": (jobs.MARGIN_SECONDS,),
}


def shorten_leases(
    lease_seconds: float = 1.0,
    renewal_seconds: float = 0.25,
    replace: Callable[[Any, str, float], None] = setattr,
) -> None:
    """In this process: one of its own, or a test's with the `setattr` of its monkeypatch."""
    for module in [one for name, one in sys.modules.items() if name.startswith("gesta.")]:
        for name, long in _LONG.items():
            if getattr(module, name, None) in long:
                seconds = lease_seconds if name == "LEASE_SECONDS" else renewal_seconds
                replace(module, name, seconds)
