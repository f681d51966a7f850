"""Several processes make one fresh file at the same moment: one schema, one key, one request, and
no process gets an error.
"""

from __future__ import annotations

import apsw
import pytest

from gesta.stores.migrations import migrations_of
from tests.processes.members import members

PROCESSES = 5


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [10, pytest.param(500, marks=pytest.mark.long)])
def test_processes_that_start_at_the_same_moment_make_one_store(tmp_path, rounds):
    with members(tmp_path) as start:
        started = [start("--openings") for _ in range(PROCESSES)]
        assert {one.hear() for one in started} == {"ready"}
        for number in range(rounds):
            folder = tmp_path / str(number)
            folder.mkdir()
            for one in started:
                one.say(str(folder))
            answers = [one.hear().split(" ", 1) for one in started]
            # One identity secret, encrypted by one master key: the same key leads everybody to the
            # same request.
            assert sorted(verdict for verdict, _ in answers) == [
                "created",
                *["duplicate"] * (PROCESSES - 1),
            ], answers
            assert len({request_id for _, request_id in answers}) == 1
            assert [path.name for path in folder.glob("*.key*")] == ["gesta.key"]
            db = apsw.Connection(str(folder / "gesta.db"))
            assert db.execute("pragma user_version").get == len(
                migrations_of("gesta.stores.sqlite")
            )
            assert db.execute("select count(*) from vault").get == 1
            assert db.execute("pragma journal_mode").get == "wal"
            db.close()
