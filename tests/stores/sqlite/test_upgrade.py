"""A file of the first schema is brought up to date with the jobs that are in it."""

import apsw

from gesta.stores.migrations import migrations_of
from gesta.stores.sqlite.database import APPLICATION_ID
from gesta.testing.contracts.job_queue import take
from gesta.testing.contracts.samples import fresh_job
from gesta.testing.harnesses.sqlite import Harness

FLOW = "test.note"


def _of_the_first_schema(path, jobs, now_ms):
    db = apsw.Connection(str(path))
    db.execute(migrations_of("gesta.stores.sqlite")[0].sql)
    db.execute(f"pragma user_version = 1; pragma application_id = {APPLICATION_ID}")
    for job in jobs:
        values = (
            job.id,
            job.tenant,
            job.flow,
            job.request_id,
            1,
            "execute",
            1,
            now_ms,
            job.priority,
            now_ms,
            0,
        )
        db.execute(
            "insert into jobs (id, tenant, flow, request_id, dispatch_version, kind, state,"
            f" due_ms, priority, score, suspect) values ({','.join('?' * 11)})",
            values,
        )
    db.close()


async def test_jobs_of_the_first_schema_keep_their_order_and_do_not_wait_for_later_ones(tmp_path):
    harness = Harness(tmp_path)
    old = [fresh_job(FLOW) for _ in range(5)]
    urgent = fresh_job(FLOW, priority=1)
    _of_the_first_schema(tmp_path / "gesta.db", [*old, urgent], harness.runtime.now_ms())
    await harness.open()
    await harness.queue.put([fresh_job(FLOW) for _ in range(20)])
    leased = [one.job.id for _ in range(6) for one in await take(harness, FLOW, free=1)]
    assert leased == [urgent.id, *(job.id for job in old)]
    await harness.close()
