"""A follower never skips an event whose transaction commits late: the two ways in which others lose
one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

from gesta.ports.transactions import Entry
from gesta.runtime.clock import spawn
from gesta.stores.postgresql.recording import record
from gesta.testing.contracts.samples import fresh_append
from tests.stores.postgresql.places import connected, fresh_url, opened


class Writer:
    """Appends inside a transaction that stays open until the test says so."""

    def __init__(self, connection, database):
        self._connection, self._sql = connection, database.sql

    async def begin(self):
        await self._connection.execute("begin")

    async def number_itself(self):
        """From here on it has its place among the transactions, whatever it writes later."""
        await self._connection.fetch("select pg_current_xact_id()")

    async def append(self, append):
        await record(cast("Any", self), [Entry(append, None)], {}, 0, durable=True)

    async def ask(self, name, *values):
        return await self._connection.fetch(self._sql(name), *values)

    async def waits(self, looking, appending):
        """Return when this one waits for a lock; or when it is through without having waited."""
        pid = self._connection.get_server_pid()
        while (
            not appending.done()
            and not (await looking.fetch("select cardinality(pg_blocking_pids($1))", pid))[0][0]
        ):
            await asyncio.sleep(0.01)

    async def commit(self):
        await self._connection.execute("commit")


class LogConsumer:
    """Goes on from the last position it has seen, as the projector does."""

    def __init__(self, events):
        self._events, self.seen, self._after = events, [], 0

    async def read(self):
        while page := await self._events.follow(self._after, 10):
            self.seen += page
            self._after = page[-1].position


async def _stage(stack):
    url = await fresh_url()
    stores = await stack.enter_async_context(opened(url))
    first, second = [Writer(*(await stack.enter_async_context(connected(url)))) for _ in range(2)]
    looking, _ = await stack.enter_async_context(connected(url))
    return LogConsumer(stores.events), first, second, looking


async def test_a_later_number_is_not_seen_before_an_earlier_one():
    """One takes its number, another takes the next and commits first: a reader then must not
    pass the first.
    """
    async with AsyncExitStack() as stack:
        follower, first, second, looking = await _stage(stack)
        early, late = fresh_append(), fresh_append()
        await first.begin()
        await first.append(early)
        await second.begin()
        appending = spawn(second.append(late), "late")
        await second.waits(looking, appending)
        if appending.done():
            await second.commit()
            await second.begin()
        await follower.read()
        assert follower.seen == []
        await first.commit()
        await follower.read()
        await appending
        await follower.read()
        await second.commit()
        await follower.read()
        assert [(event.position, event.stream) for event in follower.seen] == [
            (1, early.stream),
            (2, late.stream),
        ]


async def test_a_transaction_that_began_earlier_and_wrote_later_is_not_passed():
    """The older transaction writes second and commits first: a reader that goes by the ages of
    transactions would lose the other.
    """
    async with AsyncExitStack() as stack:
        follower, older, younger, looking = await _stage(stack)
        of_younger, of_older = fresh_append(), fresh_append()
        await older.begin()
        await older.number_itself()
        await younger.begin()
        await younger.append(of_younger)
        appending = spawn(older.append(of_older), "older")
        await older.waits(looking, appending)
        if appending.done():
            await older.commit()
            await older.begin()
        await follower.read()
        await younger.commit()
        await appending
        await older.commit()
        await follower.read()
        assert [(event.position, event.stream) for event in follower.seen] == [
            (1, of_younger.stream),
            (2, of_older.stream),
        ]
