"""The programs that are killed: a caller with a transaction of its own, and a process that drains
the outbox.

Nothing in the product knows of points.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg  # type: ignore[import-untyped]

from gesta import Attempt, Done, Engine, Flow, Outcome, Payload
from gesta.domain.commands import Rules
from gesta.engine.process_roles import Work
from gesta.runtime.settings import Settings
from gesta.stores.postgresql.address import address_of
from gesta.stores.postgresql.outbox import PostgresqlOutbox, Transaction
from tests.stores.postgresql.places import MASTER_KEY

#: Of the caller: its rows are written and not committed, or committed. Of who drains: before its
#: transaction, inside it with everything done, after.
Point = Literal[
    "not committed", "committed", "not drained", "drained, not committed", "drained", ""
]
PROJECTOR = Work(frozenset({"projector"}))


@dataclass(frozen=True)
class Plan:
    url: str
    receiver: str
    point: Point = ""
    number: int = 0


class Parcel(Payload, frozen=True):
    n: int


class Crate(Payload, frozen=True):
    n: int


def flows(receiver: str) -> list[Flow]:
    async def call(payload: Any, attempt: Attempt) -> Outcome:
        # Without a key: a second call would be a second effect.
        answer = await attempt.http.post(
            f"{receiver}/http/call", json={"n": payload.n, "flow": attempt.flow}
        )
        return Done(id=answer["id"])

    return [Flow("test.parcel", Parcel, call, Rules()), Flow("test.crate", Crate, call, Rules())]


def engine_of(plan: Plan, work: bool | Work = True) -> Engine:
    settings = Settings(
        url=plan.url, master_key=MASTER_KEY, allow_private=("127.0.0.1/32",), log_level="critical"
    )
    return Engine(settings=settings, flows=flows(plan.receiver), work=work)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def ask(plan: Plan, engine: Engine, connection: Any) -> None:
    """One row of the caller's own and two requests, prepared and raw, in the transaction that is
    open.
    """
    await connection.execute(
        "insert into orders (schema, n) values ($1, $2)", address_of(plan.url).schema, plan.number
    )
    await engine.submit(Parcel(plan.number), key=f"p{plan.number}", within=connection)
    await connection.execute(
        f"""select "{address_of(plan.url).schema}".gesta_submit(
            'test.crate', jsonb_build_object('n', $1::int))""",
        plan.number,
    )


async def call(plan: Plan) -> None:
    async with engine_of(plan, work=False) as engine:
        connection = await asyncpg.connect(address_of(plan.url).server)
        await connection.execute("begin")
        await ask(plan, engine, connection)
        if plan.point == "not committed":
            die()
        await connection.execute("commit")
        die()


async def drain(plan: Plan) -> None:
    original, asked = PostgresqlOutbox.drain, Transaction.ask

    async def watched(outbox: PostgresqlOutbox, appends: Any) -> Any:
        if plan.point == "not drained":
            die()
        answer = await original(outbox, appends)
        if plan.point == "drained":
            die()
        return answer

    async def watched_ask(transaction: Transaction, name: str, *values: object) -> Any:
        answer = await asked(transaction, name, *values)
        if name == "outbox_remove" and plan.point == "drained, not committed":
            die()
        return answer

    setattr(PostgresqlOutbox, "drain", watched)  # noqa: B010 -- of this process
    setattr(Transaction, "ask", watched_ask)  # noqa: B010 -- of this process
    async with engine_of(plan, PROJECTOR):
        await asyncio.Event().wait()


def main(plan: Plan) -> None:
    asyncio.run(call(plan) if plan.point in ("not committed", "committed") else drain(plan))
