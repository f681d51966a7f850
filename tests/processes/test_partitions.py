"""Projectors as processes of their own on a server: they share the partitions of the log; killed,
stopped and frozen under load, each is replaced.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from gesta import Engine, Request
from gesta.projector.partitions import projects
from gesta.stores.postgresql import PARTITIONS
from tests.processes.members import Lines
from tests.processes.parts import PROJECTOR, SWEEPER, WORKER, Part, parts, until
from tests.processes.program import Card, Mail, engine_on
from tests.processes.test_parts import all_at_rest, calls, more_than
from tests.stores.postgresql.places import connected, fresh_url

#: What the issue promises: another process takes over this soon.
TAKEOVER_SECONDS = 5.0

#: Every put of a job leaves a line: one that is put again after it was done with would be seen
#: nowhere else.
COUNT_PUTS = """
create table {schema}.puts (id text not null);
create function {schema}.count_put() returns trigger language plpgsql as $$
begin insert into {schema}.puts values (new.id); return new; end $$;
create trigger count_put after insert on {schema}.jobs
for each row execute function {schema}.count_put();
"""
PUT_TWICE = "select id from {schema}.puts group by id having count(*) > 1"


class Load:
    """Requests, one after the other, to a worker of its own; after an unknown outcome a person
    would have to decide about half of them.
    """

    def __init__(self, folder: Path, url: str, engine: Engine) -> None:
        self.engine, self.accepted = engine, list[Request]()
        self._lines, self._url = Lines(folder), url
        self._is_over = False
        self._submitting = asyncio.ensure_future(self._submit())

    async def _submit(self) -> None:
        while not self._is_over:
            n = len(self.accepted)
            self.accepted.append(await self.engine.submit(Mail(n) if n % 2 else Card(n)))
            await asyncio.sleep(0.02)

    async def goes_on(self, count: int = 40) -> None:
        """Until so many more requests have come."""
        end = len(self.accepted) + count
        await until(lambda: more_than(self.accepted, end), "some more requests")

    async def owners(self) -> Counter[int]:
        """Process → how many partitions it has."""
        now = self.engine.pipeline.runtime.now_ms()
        roles = await self.engine.pipeline.environment.stores.leases.roles()
        return Counter(
            int(one.owner.split(":")[1]) for one in roles if projects(one) and one.is_held(now)
        )

    async def has_all(self, part: Part) -> bool:
        return await self.owners() == {part.pid: PARTITIONS}

    async def is_shared(self, *some: Part) -> bool:
        return await self.owners() == {one.pid: PARTITIONS // len(some) for one in some}

    async def check(self) -> None:
        """Everything has ended, was put once and sent once."""
        self._is_over = True
        await self._submitting
        await all_at_rest(self.accepted)
        assert {await request.status() for request in self.accepted} == {"completed"}
        assert calls(self._lines) == Counter(range(len(self.accepted)))
        async with connected(self._url) as (connection, database):
            assert await connection.fetch(database.sql.filled(PUT_TWICE)) == []


@asynccontextmanager
async def load_on(folder: Path) -> AsyncIterator[Load]:
    url = await fresh_url()
    (folder / "url").write_text(url)
    async with engine_on(folder) as engine:
        async with connected(url) as (connection, database):
            await connection.execute(database.sql.filled(COUNT_PUTS))
        yield Load(folder, url, engine)


@pytest.mark.slow
async def test_two_projectors_share_and_when_one_is_killed_the_other_has_all_within_five_seconds(
    tmp_path,
):
    async with load_on(tmp_path) as load:
        with parts(tmp_path) as start:
            first, second, others = (
                start(*PROJECTOR),
                start(*PROJECTOR),
                [start(*WORKER), start(*SWEEPER)],
            )
            await until(lambda: load.is_shared(first, second), "both to have half")
            await load.goes_on()
            first.kill()
            async with asyncio.timeout(TAKEOVER_SECONDS):
                while not await load.has_all(second):
                    await asyncio.sleep(0.02)
            await load.goes_on()
            # A newcomer gets its share while everything goes on, and who is asked to stop leaves
            # nothing that others would wait for.
            third = start(*PROJECTOR)
            await until(lambda: load.is_shared(second, third), "the newcomer to have half")
            await load.goes_on()
            assert second.end() == 0
            assert second.pid not in await load.owners()
            await until(lambda: load.has_all(third), "the newcomer to have all")
            await load.goes_on()
            await load.check()
            assert [one.end() for one in (third, *others)] == [0, 0, 0]


@pytest.mark.slow
async def test_a_projector_that_stands_still_past_its_lease_writes_nothing_when_it_goes_on(
    tmp_path,
):
    async with load_on(tmp_path) as load:
        with parts(tmp_path) as start:
            pair, others = (
                [start(*PROJECTOR, app="brisk"), start(*PROJECTOR, app="brisk")],
                [start(*WORKER), start(*SWEEPER)],
            )
            for frozen, heir in (pair, pair[::-1]):
                await until(lambda: load.is_shared(*pair), "both to have half")
                await load.goes_on()
                os.kill(frozen.pid, signal.SIGSTOP)
                await until(partial(load.has_all, heir), "the other to have all")
                await load.goes_on()
                os.kill(frozen.pid, signal.SIGCONT)
                await load.goes_on()
            await until(lambda: load.is_shared(*pair), "both to have half again")
            await load.check()
            assert [one.end() for one in (*pair, *others)] == [0] * 4
