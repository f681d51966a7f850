"""No state of a session is relied upon: the contracts hold where every transaction gets a
connection of its own, as behind a pooler.

That is what pgbouncer in transaction mode may do at worst. A real pgbouncer was not run.
"""

from __future__ import annotations

import pytest

from gesta import Done
from gesta.stores import postgresql
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.connections import Connections, end
from gesta.stores.postgresql.database import Database
from gesta.testing.contracts.job_leases import JobLeasesContract
from gesta.testing.contracts.key_claims import EventClaimsContract
from gesta.testing.contracts.read_model import ShadowContract
from gesta.testing.contracts.transactions import (
    ProjectContract,
    RecordContract,
    TransactionsAfterRestartContract,
)
from gesta.testing.contracts.vault import VaultContract
from gesta.testing.harnesses.postgresql import Harness, SharedServer
from tests.stores.postgresql.places import Note, engine_at, fresh_url


class FreshConnections(Connections):
    async def give_back(self, connection):
        self._free.release()
        await end(connection)


class FreshHarness(Harness):
    def connections(self, address):
        return FreshConnections(address)


@pytest.fixture
def harness_type():
    return FreshHarness


class TestProject(ProjectContract): ...


class TestRecord(RecordContract): ...


class TestAfterRestart(TransactionsAfterRestartContract): ...


class TestClaims(EventClaimsContract): ...


class TestLeases(JobLeasesContract): ...


class TestVault(VaultContract): ...


class TestShadow(ShadowContract): ...


async def test_every_transaction_has_a_connection_of_its_own():
    address = address_of(await SharedServer.url())
    database = Database(address, FreshConnections(address))
    pids = [(await database.ask_text("select pg_backend_pid()"))[0][0] for _ in range(4)]
    assert len(set(pids)) == 4


async def test_the_pipeline_needs_no_session_state(monkeypatch):
    monkeypatch.setattr(postgresql, "Connections", FreshConnections)
    async with engine_at(await fresh_url(listen="off")) as engine:
        request = await engine.submit(Note("one"), key="one")
        assert await request.outcome(timeout=60) == Done("one")
        assert (await engine.submit(Note("one"), key="one")).id == request.id
