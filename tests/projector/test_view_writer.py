"""Views in another database than the events are saved behind the projector."""

from __future__ import annotations

import asyncio

import pytest

from gesta.errors import StoreError
from gesta.ports.checkpoints import Move
from gesta.ports.read_model import View, key_of
from gesta.projector.view_writer import BUSY, HOLD_SECONDS, Fold, ViewWriter
from gesta.runtime.clock import ManualRuntime
from gesta.testing.contracts.samples import fresh_view

NAMES = ("projector/0", "projector/1")


class Database:
    """Records what is written; a double of `Transactions.project`."""

    def __init__(self) -> None:
        self.views: dict[tuple[str, str, str], View] = {}
        self.position, self.writes = 0, 0
        self.open, self.error = asyncio.Event(), None
        self.open.set()

    async def project(self, views, jobs, quarantined, moves) -> bool:
        assert not jobs
        assert not quarantined
        self.writes += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        if any(move.before != self.position for move in moves):
            return False
        self.views |= {key_of(view.state): view for view in views}
        self.position = max([self.position, *(move.after for move in moves)])
        return True


class World:
    def __init__(self) -> None:
        self.runtime, self.database = ManualRuntime(), Database()
        self.heard: list[View] = []
        self.writer = ViewWriter(self.database.project, self.heard.extend, self.runtime)
        self.folded = 0

    async def fold(self, *views: View) -> None:
        """One event for each view."""
        first, self.folded = self.folded + 1, self.folded + len(views)
        moves = [Move(name, first - 1, self.folded, 0) for name in NAMES]
        firsts = range(first, self.folded + 1)
        await self.writer.add(Fold(views, firsts, moves, self.folded))

    async def let_run(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world():
    return World()


def ended(view: View) -> View:
    return fresh_view(id=view.state.id, status="sent", version=view.state.version + 1)


async def test_a_few_views_are_saved_at_once_and_the_position_follows(world):
    views = [fresh_view() for _ in range(3)]
    await world.fold(*views)
    await world.let_run()
    assert (list(world.database.views.values()), world.database.position) == (views, 3)
    assert world.heard == views


async def test_views_that_come_during_a_write_are_the_next_write(world):
    world.database.open.clear()
    first, second, third = (fresh_view() for _ in range(3))
    await world.fold(first)
    await world.let_run()
    await world.fold(second)
    await world.fold(third)
    assert world.writer.position(world.folded) == 0
    world.database.open.set()
    await world.let_run()
    assert (world.database.writes, world.database.position) == (2, 3)


async def test_under_load_a_request_that_ends_soon_is_written_once(world):
    views = [fresh_view() for _ in range(BUSY)]
    await world.fold(*views)
    await world.let_run()
    assert world.database.writes == 0
    await world.fold(*(ended(view) for view in views))
    await world.let_run()
    assert (world.database.writes, world.database.position) == (1, 2 * BUSY)
    assert {view.state.status for view in world.database.views.values()} == {"sent"}


async def test_the_position_does_not_pass_a_view_that_waits(world):
    views = [fresh_view() for _ in range(2 * BUSY)]
    await world.fold(*views)
    await world.fold(*(ended(view) for view in views[:5]), *(ended(view) for view in views[6:50]))
    await world.let_run()
    assert len(world.database.views) == 49
    # The event of the sixth request is the first that is not saved.
    assert world.database.position == world.writer.position(world.folded) == 5


async def test_an_open_request_waits_only_for_a_moment(world):
    views = [fresh_view() for _ in range(BUSY)]
    await world.fold(*views)
    await world.let_run()
    world.runtime.advance(HOLD_SECONDS)
    await world.let_run()
    assert (len(world.database.views), world.database.position) == (BUSY, BUSY)


async def test_an_open_request_that_keeps_changing_waits_only_for_a_moment(world):
    views = [fresh_view() for _ in range(BUSY)]
    await world.fold(*views)
    for version in range(2, 6):
        world.runtime.advance(HOLD_SECONDS / 4)
        await world.fold(*(fresh_view(id=view.state.id, version=version) for view in views))
        await world.let_run()
    assert (len(world.database.views), world.database.position) == (BUSY, 5 * BUSY)


async def test_the_position_does_not_pass_the_first_event_of_a_request_that_goes_on(world):
    views = [fresh_view() for _ in range(2 * BUSY)]
    await world.fold(*views)
    await world.fold(fresh_view(id=views[0].state.id, version=2))
    await world.fold(*(ended(view) for view in views[1:50]))
    await world.let_run()
    assert (len(world.database.views), world.database.position) == (49, 0)


async def test_the_next_fold_sees_what_is_not_saved_yet(world):
    world.database.open.clear()
    view = fresh_view()
    await world.fold(view)
    await world.let_run()
    assert world.writer.get([key_of(view.state)]) == {key_of(view.state): view}
    await world.fold(ended(view))
    assert world.writer.get([key_of(view.state)]) == {key_of(view.state): ended(view)}
    world.database.open.set()
    await world.let_run()
    assert world.writer.get([key_of(view.state)]) == {}


async def test_where_another_projector_was_faster_all_that_waits_is_forgotten(world):
    world.database.open.clear()
    await world.fold(fresh_view())
    await world.let_run()
    await world.fold(fresh_view())
    world.database.position = 7
    world.database.open.set()
    await world.let_run()
    assert (world.database.views, world.heard) == ({}, [])
    await world.fold(fresh_view())
    await world.let_run()
    assert world.database.writes == 1
    assert world.writer.is_overtaken() is True
    assert world.writer.is_overtaken() is False


async def test_an_error_is_raised_once_and_all_that_waits_is_forgotten(world):
    world.database.error = StoreError("out of reach")
    await world.fold(fresh_view())
    with pytest.raises(StoreError, match="out of reach"):
        await world.writer.flush()
    world.database.error = None
    assert await world.writer.flush() is True
    assert (world.database.views, world.writer.position(0)) == ({}, 0)


async def test_a_flush_waits_for_no_request_to_end(world):
    await world.fold(*(fresh_view() for _ in range(2 * BUSY)))
    assert await world.writer.flush() is True
    assert world.database.position == 2 * BUSY


async def test_moves_that_do_not_continue_are_written_after_those_that_wait(world):
    await world.fold(*(fresh_view() for _ in range(BUSY)))
    view, reached = fresh_view(), 2 * BUSY
    world.database.open.set()
    # Say one partition alone, which another projector had brought further.
    moves = [Move(NAMES[1], BUSY, reached, 0)]
    await world.writer.add(Fold([view], [reached], moves, reached))
    assert world.database.position == BUSY
    await world.writer.flush()
    assert world.database.position == reached
