"""Several processes that project: each has its part of the log, and whatever becomes of them
everything is dispatched once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gesta import Engine
from gesta.engine.process_roles import Work
from gesta.errors import StoreError
from gesta.maintenance.store_copy.plan import CopyPlan, Home
from gesta.maintenance.store_copy.roles import LEASE_SECONDS as COPY_SECONDS
from gesta.maintenance.store_copy.roles import Roles
from gesta.ports.checkpoints import Move
from gesta.ports.job_queue import Job
from gesta.ports.leases import LEASE_SECONDS, RENEWAL_SECONDS, RoleLease, fair_part
from gesta.projector.partitions import (
    CHECKPOINT,
    PartitionPosition,
    PartitionPositions,
    Partitions,
    Span,
    checkpoints_of,
)
from gesta.runtime.clock import spawn
from gesta.stores.memory.database import MemoryDatabase
from gesta.testing.plugin import Harness
from tests.world import URL, Note, Provider, die, engine_of, let_run, note_flow, pass_time, result

COUNT = 3
#: Enough that every partition has some.
REQUESTS = 24
PROJECTOR = Work(frozenset({"projector"}))


@pytest.fixture(autouse=True)
def store(gesta: Harness) -> MemoryDatabase:
    """The engines of these tests share a store that is divided."""
    return gesta._databases.setdefault(URL, MemoryDatabase(gesta.runtime, COUNT))


def projecting(provider: Provider) -> Engine:
    return Engine(URL, flows=[note_flow(provider)], work=PROJECTOR)


def parts(*engines: Engine) -> list[set[int]]:
    return [set(engine.pipeline.projector.partitions.ours) for engine in engines]


async def test_two_processes_share_and_every_request_is_sent_once(gesta):
    provider = Provider()
    async with engine_of(provider) as first:
        await let_run(gesta)
        assert (parts(first), first.pipeline.projector.is_here) == ([{0, 1, 2}], True)
        async with projecting(provider) as second:
            await pass_time(gesta, RENEWAL_SECONDS)
            assert sorted(map(len, parts(first, second))) == [1, 2]
            assert set.union(*parts(first, second)) == {0, 1, 2}
            # Neither hears of every outcome: a waiter polls.
            assert (first.pipeline.projector.is_here, second.pipeline.projector.is_here) == (
                False,
                False,
            )
            seen: list[int] = []
            for engine in (first, second):
                engine.pipeline.projector.listen(lambda views: seen.append(len(views)))
            requests = [await first.submit(Note(str(n))) for n in range(REQUESTS)]
            await pass_time(gesta, 2)
            assert {await request.status() for request in requests} == {"completed"}
            assert (
                await first.pipeline.projector.position()
                == await first.pipeline.environment.stores.events.end()
            )
            assert await second.admin.unseen() == 0
        # It has given up its part: no process waits for a lease.
        await pass_time(gesta, RENEWAL_SECONDS)
        assert parts(first) == [{0, 1, 2}]
    assert len(provider.calls) == REQUESTS


async def test_the_part_of_a_process_that_died_goes_to_the_others(gesta):
    provider = Provider()
    async with engine_of(provider) as living:
        await let_run(gesta)
        before = asyncio.all_tasks()
        dying = projecting(provider)
        await dying.start()
        await pass_time(gesta, RENEWAL_SECONDS)
        assert all(parts(living, dying))
        await die(dying, before)
        requests = [await living.submit(Note(str(n))) for n in range(REQUESTS)]
        await let_run(gesta)
        assert None in [await result(request) for request in requests]
        await pass_time(gesta, LEASE_SECONDS + RENEWAL_SECONDS)
        assert {await request.status() for request in requests} == {"completed"}
    assert len(provider.calls) == REQUESTS


async def test_partitions_at_different_positions_after_a_takeover_are_dispatched_once(gesta, store):
    put: list[Job] = []
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as asking:
        for n in range(REQUESTS):
            await asking.submit(Note(str(n)))
        projector = asking.pipeline.projector
        # As an owner of one partition leaves it who died half way.
        projector._followed = frozenset({1})
        assert await projector.step() == REQUESTS
        ahead = set(store.queue._rows)
        assert 0 < len(ahead) < REQUESTS
        for n in range(REQUESTS):
            await asking.submit(Note(str(n)))
        project = store.transactions.project

        async def watch(views, jobs, quarantined, moves, free_slots):
            put.extend(jobs)
            return await project(views, jobs, quarantined, moves, free_slots)

        store.transactions.project = watch
        projector._followed, projector._positions = frozenset({0, 1, 2}), None
        while await projector.step():
            pass
        assert len({job.id for job in put}) == len(put) == 2 * REQUESTS - len(ahead)
        assert not ahead & {job.id for job in put}
        assert (
            await projector.position()
            == await asking.pipeline.environment.stores.events.end()
            == 2 * REQUESTS
        )


async def test_a_rebuild_turns_all_partitions_back_and_puts_nothing_again(gesta, store):
    async with Engine(URL, flows=[note_flow(Provider())], work=False) as asking:
        for n in range(REQUESTS):
            await asking.submit(Note(str(n)))
        projector = asking.pipeline.projector
        for followed in (frozenset({0, 2}), frozenset({0})):
            projector._followed, projector._positions = followed, None
            await projector.step()
            await asking.submit(Note("more"))
        projector._followed, projector._positions = frozenset({0, 1, 2}), None
        await projector.step()
        before, jobs = dict(store.read_model._rows), set(store.queue._rows)
        store.queue._rows.clear()
        await asking.admin.rebuild()
        # What was put is not put again, whatever the partition; what was not is put by the process
        # that projects.
        assert set(store.queue._rows) == set()
        assert dict(store.read_model._rows) == before
        projector._positions = None
        while await projector.step():
            pass
        assert not jobs & set(store.queue._rows)
        assert len(jobs) + len(store.queue._rows) == len(store.read_model._rows) == REQUESTS + 2


async def test_an_owner_that_stood_still_past_its_lease_writes_nothing(gesta, ports):
    provider = Provider()
    async with engine_of(provider):
        await let_run(gesta)
        commits = ports.transactions
        reached, goes_on = asyncio.Event(), asyncio.Event()

        async def stalls(original, *args):
            reached.set()
            await goes_on.wait()
            answers.append(await original(*args))
            return answers[-1]

        answers: list[bool] = []
        async with projecting(provider) as second:
            # Of the engine that was opened first.
            commits.replace("project", stalls)
            requests = [await second.submit(Note(str(n))) for n in range(REQUESTS)]
            await reached.wait()
            await pass_time(gesta, LEASE_SECONDS + RENEWAL_SECONDS)
            assert parts(second) == [{0, 1, 2}]
            goes_on.set()
            await pass_time(gesta, 3)
            assert answers[0] is False
            assert {await request.status() for request in requests} == {"completed"}
    assert len(provider.calls) == REQUESTS


@pytest.mark.parametrize(
    "expire", [False, True], ids=["taken by another", "taken by another and back"]
)
async def test_cached_views_are_dropped_with_their_partition(gesta, ports, store, expire):
    """A process that reads the positions again drops its views: gesta.stores.recent_views."""
    async with projecting(Provider()) as engine:
        await pass_time(gesta, 2 * RENEWAL_SECONDS)
        before = ports.read_model.calls["checkpoints"]
        if expire:
            # It stood still, another had them meanwhile, and it gets the very same again.
            gesta.runtime.advance(LEASE_SECONDS)
        else:
            await store.read_model.share(CHECKPOINT, COUNT, "another", LEASE_SECONDS)
            gesta.runtime.advance(RENEWAL_SECONDS)
        await let_run(gesta)
        assert ports.read_model.calls["checkpoints"] == before + 1
        assert len(engine.pipeline.projector.partitions.ours) == (3 if expire else 2)


async def test_a_copy_holds_the_whole_role_and_displaces_no_process(gesta, store):
    homes = Home(MemoryDatabase(gesta.runtime).stores(), "source"), Home(store.stores(), "target")
    roles = Roles(CopyPlan(*homes), "copy", gesta.runtime)
    async with projecting(Provider()):
        await let_run(gesta)
        holding = spawn(roles.hold(), "gesta-test")
        await pass_time(gesta, COPY_SECONDS + RENEWAL_SECONDS)
        with pytest.raises(StoreError, match="worked on by another process"):
            await holding
    await roles.hold()
    assert await store.read_model.share(CHECKPOINT, COUNT, "another", LEASE_SECONDS) == set()
    await roles.release()
    assert len(await store.read_model.share(CHECKPOINT, COUNT, "another", LEASE_SECONDS)) == COUNT


def test_the_partition_furthest_behind_goes_first_up_to_the_next_position():
    positions = PartitionPositions(
        4,
        {
            0: PartitionPosition(5, 0),
            1: PartitionPosition(9, 0),
            2: PartitionPosition(5, 0),
            3: PartitionPosition(7, 0),
        },
    )
    assert positions.next_span(again=False) == Span((0, 2), 5, 7, 5)
    positions.moved((0, 2), 7)
    assert positions.next_span(again=False) == Span((0, 2, 3), 7, 9, 7)
    positions.moved((0, 2, 3), 9)
    assert positions.next_span(again=False) == Span((0, 1, 2, 3), 9, None, 9)
    positions.moved((3,), 10)
    assert positions.next_span(again=False) == Span((0, 1, 2), 9, 10, 9)
    span = Span((1, 3), 9, None, 9)
    assert positions.moves(span, 12) == [
        Move("projector/1", 9, 12, 0),
        Move("projector/3", 9, 12, 0),
    ]


def test_events_that_were_projected_inline_meanwhile_are_not_projected_again():
    """A stretch that was begun before it moves from where it began: its commit is refused, and
    nothing is dispatched twice.
    """
    positions = PartitionPositions(2, {0: PartitionPosition(5, 0), 1: PartitionPosition(5, 0)})
    span = positions.next_span(again=False)
    assert span is not None
    positions.reached(6)
    assert positions.moves(span, 6) == [Move("projector/0", 5, 6, 0), Move("projector/1", 5, 6, 0)]
    assert positions.lowest == 6
    positions.reached(4)
    assert positions.lowest == 6


def test_a_partition_that_is_ahead_is_read_alone_until_it_passes_its_mark():
    positions = PartitionPositions(2, {0: PartitionPosition(5, 20), 1: PartitionPosition(5, 8)})
    assert positions.next_span(again=False) == Span((1,), 5, None, 8)
    assert positions.next_span(again=True) == Span((1,), 5, 8, 8)
    positions.moved((1,), 8)
    assert positions.next_span(again=True) == Span((0,), 5, 20, 20)
    positions.moved((0,), 20)
    assert positions.next_span(again=True) is None
    positions.moved((1,), 20)
    assert positions.next_span(again=False) == Span((0, 1), 20, None, 20)


def test_partitions_are_level_only_at_one_position_and_past_what_was_dispatched():
    level = [PartitionPosition(5, 3), PartitionPosition(5, 5)]
    assert PartitionPositions(2, dict(enumerate(level))).level == {
        "projector/0": 3,
        "projector/1": 5,
    }
    apart = [PartitionPosition(5, 0), PartitionPosition(6, 0)]
    assert PartitionPositions(2, dict(enumerate(apart))).level is None
    # After a rebuild: inline projection would put the jobs of these events a second time.
    assert PartitionPositions(1, {0: PartitionPosition(5, 6)}).level is None


class OneLease:
    """A fake of Leases that gives the next of its answers, and runs a callback during a claim."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.during: list[Callable[[], Awaitable[None]]] = []

    async def claim(self, _name: str, _owner: str, _seconds: float) -> bool:
        for call in self.during:
            await call()
        return self.answers.pop(0)


async def test_partitions_given_up_during_a_claim_are_not_held_after_it(gesta):
    async with projecting(Provider()) as engine:
        leases: Any = OneLease(True, True)
        partitions = Partitions(1, leases, engine.pipeline.process)
        leases.during.append(partitions.give_up)
        assert await partitions.hold() == frozenset()
        assert await partitions.hold() == frozenset()
        assert leases.answers == []


async def test_a_process_without_a_partition_claims_again_at_once_and_an_owner_after_a_second(
    gesta,
):
    async with projecting(Provider()) as engine:
        leases: Any = OneLease(False, True, False)
        partitions = Partitions(1, leases, engine.pipeline.process)
        assert await partitions.hold() == frozenset()
        assert await partitions.hold() == await partitions.hold() == frozenset({0})
        assert leases.answers == [False]
        gesta.runtime.advance(RENEWAL_SECONDS)
        assert await partitions.hold() == frozenset()


@pytest.mark.parametrize("owners", range(1, 20))
def test_any_number_of_processes_gets_fair_parts_and_the_division_is_stable(owners):
    now, names = 1_000_000, checkpoints_of(16)
    parts = {name: RoleLease(name, "", 0) for name in names}
    rounds: list[list[int]] = []
    for _ in range(3):
        for owner in map(str, range(owners)):
            parts |= {
                name: RoleLease(name, owner, now + 3_000)
                for name in fair_part([*parts.values()], owner, now)
            }
        held = [part.owner for part in parts.values()]
        rounds.append([held.count(str(owner)) for owner in range(owners)])
    assert rounds[1] == rounds[2]
    least = 16 // owners
    assert sum(rounds[2]) == 16
    assert set(rounds[2]) <= {least, least + 1}
