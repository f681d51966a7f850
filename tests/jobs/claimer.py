"""A worker process: claims jobs, logs each claim and each confirmed completion, until killed.

python -m tests.jobs.claimer <url of the jobs> <name> <log file> <worker id>
"""

from __future__ import annotations

import asyncio
import os
import sys

from gesta.ports.job_store import Claim, Completion
from gesta.runtime.clock import SystemRuntime
from gesta.stores import open_jobs

LEASE_SECONDS = 2.0


async def main(url: str, name: str, log: str, worker: str) -> None:
    ports = await open_jobs(url, SystemRuntime())
    store = ports.job_store
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, job_id: str) -> None:
        os.write(file, f"{word} {job_id} {worker}\n".encode())

    os.write(file, f"ready - {worker}\n".encode())
    while True:
        await store.reap()
        claimed = await store.claim(
            Claim(worker_id=worker, names=(name,), limit=4, lease_seconds=LEASE_SECONDS)
        )
        for one in claimed.value or ():
            assert one.value is not None, one
            note("claimed", one.value.job.id)
            await asyncio.sleep(0.002)
            (end,) = await store.complete([Completion(one.value.held, f'"{worker}"')])
            note("completed" if end.is_success else "refused", one.value.job.id)
        if not claimed.value:
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
