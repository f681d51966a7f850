"""Rows of the SQL stores, in the order in which their statements list the columns."""

from collections.abc import Iterable
from typing import Any

from gesta.ports.leases import LiveProcess


def process_row(process: LiveProcess) -> tuple[Any, ...]:
    return (
        process.id,
        process.host,
        process.pid,
        " ".join(process.roles),
        process.version,
        process.since_ms,
    )


def process_of(row: Iterable[Any]) -> LiveProcess:
    id_, host, pid, roles, version, since_ms = row
    return LiveProcess(id_, host, pid, tuple(roles.split()), version, since_ms)
