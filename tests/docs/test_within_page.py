"""The three programs of docs/within.md, unchanged, on a database of their own."""

from __future__ import annotations

import asyncio

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from gesta import Attempt, Done, Flow, Outcome, Payload
from gesta.domain.commands import Rules
from gesta.runtime.clock import SystemRuntime
from gesta.testing.harnesses.postgresql import SharedServer
from tests.docs.test_docs import ROOT, blocks, program
from tests.stores.postgresql.places import engine_at

PAGE = ROOT / "docs" / "within.md"


class Receipt(Payload, frozen=True):
    order: str


async def print_it(payload: Receipt, attempt: Attempt) -> Outcome:
    return Done(id=f"receipt-{payload.order}")


RECEIPT = Flow("billing.receipt", Receipt, print_it, Rules(on_unknown="resend"))


async def test_the_programs_of_the_page_about_transactions_do_what_it_says(capsys):
    server = (await SharedServer.url()).rpartition("/")[0]
    name = f"shop_{SystemRuntime().random_bytes(6).hex()}"
    connection = await asyncpg.connect(f"{server}/postgres")
    await connection.execute(f"create database {name}")
    await connection.execute(
        "do $$ begin create role shop; exception when duplicate_object then null; end $$"
    )
    await connection.close()
    url = f"{server}/{name}"
    connection = await asyncpg.connect(url)
    await connection.execute("create table orders (id integer)")
    async with engine_at(url, RECEIPT) as engine:
        await program(PAGE, "import asyncpg")["pay"](engine, connection, Receipt("7"))
        alchemy = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
        async with AsyncSession(alchemy) as session:
            await program(PAGE, "import AsyncSession")["pay"](engine, session, Receipt("8"))
        await alchemy.dispose()
        for block in blocks(PAGE, "sql"):
            await connection.execute(block)
        async with asyncio.timeout(20):
            while await engine.admin.counts() != {("billing.receipt", "completed"): 3}:
                await asyncio.sleep(0.02)
        assert (await engine.submit(Receipt("9"), key="order-9")).verdict == "duplicate"
        granted = (
            "select count(*) from pg_proc where pronamespace = 'gesta'::regnamespace and"
            " has_function_privilege('shop', oid, 'execute') and prosecdef"
        )
        assert await connection.fetchval(granted) == 2
    assert [row[0] for row in await connection.fetch("select id from orders order by 1")] == [
        7,
        8,
        9,
    ]
    await connection.close()
    assert capsys.readouterr().out.splitlines() == [
        "deferred Done(id='receipt-7')",
        "deferred Done(id='receipt-8')",
    ]
