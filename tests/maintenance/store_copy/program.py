"""`gesta copy` in a process of its own, with short leases and small pages; with a number, it is
killed as so many calls to its stores were made.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import gesta.engine.environment
import gesta.maintenance.store_copy.comparison
import gesta.maintenance.store_copy.copy
import gesta.maintenance.store_copy.roles
import gesta.maintenance.store_copy.transfer
from gesta.cli.main import main
from gesta.ports.stores import Stores

open_ports = gesta.engine.environment.open_ports


class Counted:
    """A port that counts its calls with those of the others, before and after each, and dies at
    one.
    """

    left = 0

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, verb: str) -> Any:
        original = getattr(self._port, verb)
        if not inspect.iscoroutinefunction(original):
            return original

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._count()
            answer = await original(*args, **kwargs)
            self._count()
            return answer

        return call

    def _count(self) -> None:
        Counted.left -= 1
        if Counted.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def counted(*given: Any) -> Stores:
    stores = await open_ports(*given)
    ports: dict[str, Any] = {
        name: Counted(getattr(stores, name))
        for name in stores.capabilities - {"token_buckets", "outbox"}
    }
    return replace(stores, **ports)


def hurry(page: int) -> None:
    gesta.maintenance.store_copy.roles.LEASE_SECONDS = 1.0
    gesta.maintenance.store_copy.roles.RENEWAL_SECONDS = 0.2  # type: ignore[attr-defined]
    gesta.maintenance.store_copy.copy.LEASE_SECONDS = 1.0  # type: ignore[attr-defined]
    for module in (
        gesta.maintenance.store_copy.transfer,
        gesta.maintenance.store_copy.copy,
        gesta.maintenance.store_copy.comparison,
    ):
        module.PAGE = page  # type: ignore[attr-defined]


if __name__ == "__main__":
    source, target, calls, page, *options = sys.argv[1:]
    Counted.left = int(calls)
    setattr(gesta.engine.environment, "open_ports", counted)  # noqa: B010 -- of this process
    hurry(int(page))
    main(["copy", "--from", source, "--to", target, *options])
