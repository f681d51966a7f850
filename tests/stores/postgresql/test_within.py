"""A request as part of the caller's own transaction: it exists if and only if that commits,
whichever library the caller has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from gesta import (
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    NotFound,
    Outcome,
    Overloaded,
    Rejected,
    Settings,
)
from gesta.domain.commands import Rules
from gesta.engine.process_roles import Work
from gesta.errors import BadTransaction, StoreError
from gesta.stores.postgresql.address import address_of
from tests.stores.postgresql.places import (
    MASTER_KEY,
    NOTE,
    Note,
    drained,
    engine_at,
    fresh_url,
    projected,
)

#: Programs that only submit, beside those that work.
DRAINS_ONLY = Work(frozenset({"projector"}))


class Asyncpg:
    """A caller: how to open a connection and what a business transaction looks like."""

    @staticmethod
    @asynccontextmanager
    async def connection(server: str) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(server)
        try:
            yield connection
        finally:
            await connection.close()

    @staticmethod
    async def begin(connection) -> None:
        await connection.execute("begin")

    @staticmethod
    async def end(connection, word: str) -> None:
        await connection.execute(word)


class Pooled(Asyncpg):
    @staticmethod
    @asynccontextmanager
    async def connection(server: str) -> AsyncIterator[Any]:
        async with (
            asyncpg.create_pool(server, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            yield connection


class Psycopg:
    @staticmethod
    @asynccontextmanager
    async def connection(server: str) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(
            server, row_factory=psycopg.rows.dict_row
        ) as connection:
            yield connection

    @staticmethod
    async def begin(connection) -> None:
        """By itself, with the first statement."""

    @staticmethod
    async def end(connection, word: str) -> None:
        await getattr(connection, word)()


class Session:
    driver = "asyncpg"

    @classmethod
    @asynccontextmanager
    async def connection(cls, server: str) -> AsyncIterator[Any]:
        engine = create_async_engine(server.replace("postgresql:", f"postgresql+{cls.driver}:"))
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()

    @staticmethod
    async def begin(connection) -> None:
        """By itself, with the first statement."""

    @staticmethod
    async def end(connection, word: str) -> None:
        await getattr(connection, word)()


class SessionOnPsycopg(Session):
    driver = "psycopg"


class CoreConnection(Session):
    @classmethod
    @asynccontextmanager
    async def connection(cls, server: str) -> AsyncIterator[Any]:
        engine = create_async_engine(server.replace("postgresql:", "postgresql+asyncpg:"))
        async with engine.connect() as connection:
            yield connection
        await engine.dispose()


LIBRARIES: list[Any] = [Asyncpg, Pooled, Psycopg, Session, SessionOnPsycopg, CoreConnection]


@asynccontextmanager
async def transaction(library, url: str, word: str = "commit") -> AsyncIterator[Any]:
    """A caller's transaction on the store's database, ended with this word."""
    async with library.connection(address_of(url).server) as connection:
        await library.begin(connection)
        yield connection
        await library.end(connection, word)


async def left_in(engine: Engine) -> int:
    """How many requests the outbox has."""
    outbox = engine.pipeline.environment.stores.outbox
    assert outbox is not None
    return await outbox.count(10)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_committed_request_is_executed_once_and_a_rolled_back_one_never(library):
    url = await fresh_url()
    async with engine_at(url) as engine:
        async with transaction(library, url, "rollback") as connection:
            lost = await engine.submit(Note("lost"), key="lost", within=connection)
            assert lost.verdict == "deferred"
        async with transaction(library, url) as connection:
            kept = await engine.submit(Note("kept"), key="kept", within=connection)
        assert await kept.outcome() == Done("kept")
        await projected(engine)
        assert await engine.admin.counts() == {("test.note", "completed"): 1}
        assert (await engine.history(kept.id))[0][0] == "test.note.RequestCreated.v1"
        with pytest.raises(NotFound, match=lost.id):
            await engine.get(lost.id)
        # The key of what was rolled back is free.
        assert (await engine.submit(Note("other"), key="lost")).verdict == "created"
        assert (await engine.submit(Note("kept"), key="kept")).verdict == "duplicate"
        assert await left_in(engine) == 0


async def test_before_the_commit_the_request_is_invisible_and_blocks_no_one():
    url = await fresh_url()
    async with engine_at(url) as engine:
        async with transaction(Asyncpg, url) as connection:
            request = await engine.submit(Note("later"), within=connection)
            with pytest.raises(NotFound, match="is not committed"):
                await request.outcome(timeout=0.3)
            # The counter row is free meanwhile: others append, work and are done.
            other = await engine.submit(Note("other"))
            assert await other.outcome() == Done("other")
        assert await request.status() in ("queued", "completed")
        assert await request.outcome() == Done("later")


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_visible_key_is_answered_immediately(library):
    url = await fresh_url()
    async with engine_at(url, work=False) as engine:
        first = await engine.submit(Note("one"), key="appended")
        async with transaction(library, url) as connection:
            again = await engine.submit(Note("one"), key="appended", within=connection)
            assert (again.verdict, again.id) == ("duplicate", first.id)
            with pytest.raises(Conflict, match=first.id):
                await engine.submit(Note("two"), key="appended", within=connection)
            # Also what stands in the outbox, even if only this transaction sees it.
            deferred = await engine.submit(Note("one"), key="deferred", within=connection)
            again = await engine.submit(Note("one"), key="deferred", within=connection)
            assert (again.verdict, again.id) == ("duplicate", deferred.id)
            with pytest.raises(Conflict, match=deferred.id):
                await engine.submit(Note("two"), key="deferred", within=connection)
        assert await left_in(engine) == 1


async def test_two_transactions_with_one_key_do_not_wait_for_each_other_and_the_claim_decides():
    url = await fresh_url()
    async with engine_at(url, work=False) as asking:
        async with (
            transaction(Asyncpg, url) as one,
            transaction(Asyncpg, url) as other,
            transaction(Psycopg, url) as third,
        ):
            first = await asking.submit(Note("same"), key="k", within=one)
            async with asyncio.timeout(5):
                late = await asking.submit(Note("same"), key="k", within=other)
                foe = await asking.submit(Note("different"), key="k", within=third)
            assert [first.verdict, late.verdict, foe.verdict] == ["deferred"] * 3
        async with engine_at(url) as engine:
            outcomes = {
                r.id: await (await drained(engine, r.id)).outcome() for r in (first, late, foe)
            }
            assert outcomes[first.id] == Done("same")
            assert outcomes[late.id] == Rejected(
                "duplicate", f"request {first.id} has the same key and content"
            )
            assert outcomes[foe.id] == Rejected(
                "conflict", f"the key was used before for request {first.id} with other content"
            )
            await projected(engine)
            assert await engine.admin.counts() == {
                ("test.note", "completed"): 1,
                ("test.note", "cancelled"): 1,
                ("test.note", "failed"): 1,
            }
            [letter] = await engine.admin.dead_letters()
            assert (letter.id, letter.failure.reason) == (foe.id, "conflict")
            # Nothing of the two was tried.
            assert [name.split(".")[2] for name, _, _ in await engine.history(late.id)] == [
                "RequestCreated",
                "Cancelled",
            ]
            assert [name.split(".")[2] for name, _, _ in await engine.history(foe.id)] == [
                "RequestCreated",
                "Failed",
            ]


async def test_a_key_claimed_before_the_commit_makes_the_deferred_one_a_late_duplicate():
    url = await fresh_url()
    async with engine_at(url) as engine:
        async with transaction(Asyncpg, url) as connection:
            late = await engine.submit(Note("same"), key="k", within=connection)
            first = await engine.submit(Note("same"), key="k")
            assert (late.verdict, first.verdict) == ("deferred", "created")
        assert await late.outcome() == Rejected(
            "duplicate", f"request {first.id} has the same key and content"
        )
        assert await late.status() == "cancelled"
        assert await first.outcome() == Done("same")


@pytest.mark.parametrize("library", [Asyncpg, Psycopg, Session])
async def test_a_connection_that_commits_each_statement_is_refused(library):
    url = await fresh_url()
    async with (
        engine_at(url, work=False) as engine,
        library.connection(address_of(url).server) as connection,
    ):
        if library is Psycopg:
            await connection.set_autocommit(True)
        if library is Session:
            await connection.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(BadTransaction, match="no transaction is open"):
            await engine.submit(Note(), within=connection)
        assert await left_in(engine) == 0
        if library is Psycopg:
            async with connection.transaction():
                assert (await engine.submit(Note(), within=connection)).verdict == "deferred"


async def test_an_object_that_is_no_transaction_is_refused():
    url = await fresh_url()
    server = address_of(url).server
    async with engine_at(url, work=False) as engine:
        with pytest.raises(
            BadTransaction,
            match="a str is not a connection of a supported library; pass an asyncpg connection",
        ):
            await engine.submit(Note(), within="here")
        with (
            psycopg.connect(server) as connection,
            pytest.raises(BadTransaction, match="gesta_submit"),
        ):
            await engine.submit(Note(), within=connection)
        # Another database: there is no outbox.
        async with Asyncpg.connection(server) as connection:
            await connection.execute(f"create database other_{address_of(url).schema}")
        elsewhere = f"{server.rpartition('/')[0]}/other_{address_of(url).schema}"
        for library in LIBRARIES:
            async with library.connection(elsewhere) as connection:
                await library.begin(connection)
                with pytest.raises(BadTransaction, match="GESTA_URL"):
                    await engine.submit(Note(), within=connection)
                await library.end(connection, "rollback")


async def test_within_on_a_store_without_an_outbox_is_refused_with_the_store_it_needs():
    async with engine_at("memory://", work=False) as engine:
        with pytest.raises(BadTransaction, match="needs PostgreSQL"):
            await engine.submit(Note(), within=object())


@pytest.mark.parametrize("library", LIBRARIES)
async def test_errors_of_the_callers_library_become_ours(library):
    url = await fresh_url()
    async with (
        engine_at(url, work=False) as engine,
        library.connection(address_of(url).server) as connection,
    ):
        await library.begin(connection)
        words = "set transaction read only"
        await connection.execute(text(words) if issubclass(library, Session) else words)
        with pytest.raises(StoreError, match=r"your connection failed .*read-only"):
            await engine.submit(Note(), within=connection)
        await library.end(connection, "rollback")


async def test_another_process_drains_what_the_leader_leaves():
    """The process that projects does not declare the flow of a raw request; one that stands by
    does.
    """
    url = await fresh_url()

    async def never(_: Note, __: Attempt) -> Outcome:
        raise AssertionError

    class Other(Note, frozen=True):
        pass

    other = Flow("test.other", Other, never, Rules())
    async with engine_at(url, other, work=DRAINS_ONLY) as projecting:
        assert await projecting.pipeline.projector.partitions.is_first_ours()
        async with (
            engine_at(url, NOTE) as engine,
            Asyncpg.connection(address_of(url).server) as connection,
        ):
            schema = address_of(url).schema
            request_id = await connection.fetchval(
                f"""select {schema}.gesta_submit('test.note', '{{"text": "raw"}}')"""
            )
            request = await drained(engine, str(request_id))
            assert await request.outcome() == Done("raw")


async def test_the_outbox_counts_as_backlog():
    url = await fresh_url()
    async with (
        engine_at(url, work=False) as engine,
        transaction(Asyncpg, url) as connection,
    ):
        await engine.submit(Note(), within=connection)
    settings = Settings(url=url, master_key=MASTER_KEY, backlog_max=1)
    async with Engine(settings=settings, flows=[NOTE], work=False) as engine:
        assert await left_in(engine) == 1
        with pytest.raises(Overloaded, match="backlog_max"):
            await engine.submit(Note())
