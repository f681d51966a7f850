"""Turns jobs that were stored as one JSON text into hashes, while services use the store.

Every job is compared and replaced in one step, so no change of another program is lost. Existing
hashes are skipped, so an interrupted migration continues where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

BATCH = 200
#: How often a job that other programs keep changing is tried.
TRIES = 5


class TextJobs(Protocol):
    async def texts(self, cursor: str, count: int) -> tuple[str, list[str]]: ...
    async def to_hashes(self, ids: list[str]) -> list[str]: ...


@dataclass(frozen=True)
class Migrated:
    hashes: int
    #: Ids of jobs that could not be read, or kept changing. They are unchanged.
    left: tuple[str, ...]


async def migrate(jobs: TextJobs, progress: Callable[[int, int], None]) -> Migrated:
    """`progress` is called with the jobs seen so far and the jobs converted."""
    counts: Counter[str] = Counter()
    left: list[str] = []
    cursor = "0"
    while True:
        cursor, ids = await jobs.texts(cursor, BATCH)
        for _ in range(TRIES):
            answers = dict(zip(ids, await jobs.to_hashes(ids), strict=True)) if ids else {}
            counts.update(answers.values())
            left += [one for one, code in answers.items() if code == "UNREADABLE"]
            ids = [one for one, code in answers.items() if code == "STALE"]
            progress(counts.total() - counts["STALE"], counts["OK"])
            if not ids:
                break
        left += ids
        if cursor == "0":
            return Migrated(counts["OK"], tuple(dict.fromkeys(left)))
