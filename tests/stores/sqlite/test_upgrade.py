"""A file of an older schema is brought up to date with the jobs that are in it, and then refused
to the older version.
"""

import apsw
import pytest

from gesta.errors import TooNew
from gesta.stores.migrations import Migration, migrations_of
from gesta.stores.sqlite import database
from gesta.testing.contracts.job_queue import take
from gesta.testing.contracts.samples import fresh_job
from gesta.testing.harnesses.sqlite import Harness

FLOW = "test.note"


async def test_a_new_migration_keeps_the_jobs_and_their_order(tmp_path, monkeypatch):
    known = migrations_of("gesta.stores.sqlite")
    number = len(known) + 1
    added = Migration(number, f"{number:04}_next.sql", "alter table jobs add column colour text;")
    older = Harness(tmp_path)
    await older.open()
    jobs = [fresh_job(FLOW) for _ in range(5)]
    urgent = fresh_job(FLOW, priority=1)
    await older.queue.put([*jobs, urgent])
    await older.close()
    with monkeypatch.context() as newer_version:
        newer_version.setattr(database, "migrations_of", lambda _: [*known, added])
        newer = Harness(tmp_path)
        await newer.open()
        await newer.queue.put([fresh_job(FLOW) for _ in range(20)])
        leased = [one.job.id for _ in range(6) for one in await take(newer, FLOW, free=1)]
        assert leased == [urgent.id, *(job.id for job in jobs)]
        await newer.close()
    db = apsw.Connection(str(tmp_path / "gesta.db"))
    assert db.execute("pragma user_version").get == number
    assert db.execute("select count(*) from jobs where colour is null").get == 26
    db.close()
    with pytest.raises(TooNew):
        await Harness(tmp_path).open()
