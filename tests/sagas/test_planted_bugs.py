"""Bugs that are planted on purpose, and found."""

from __future__ import annotations

import pytest

from gesta import Attempt, Done, Engine, Flow, Outcome, RetryPolicy, Unknown
from gesta.domain.commands import Rules
from gesta.domain.state import State
from gesta.sagas.orders import result_of
from gesta.testing.plugin import Harness
from tests.sagas.trips import Book, Trip, Unbook, trip


async def undone_while_unknown(gesta: Harness) -> list[str]:
    """What was undone while it was unknown whether the car is booked; the saga was cancelled."""
    undone: list[str] = []

    async def book(payload: Book, _: Attempt) -> Outcome:
        return Unknown("timeout") if payload.what == "car" else Done(payload.what)

    async def unbook(payload: Unbook, _: Attempt) -> Outcome:
        undone.append(payload.what)
        return Done()

    rules = Rules(RetryPolicy(attempts=3), "manual")
    flows = [trip, Flow("trip.book", Book, book, rules), Flow("trip.unbook", Unbook, unbook, rules)]
    async with Engine("memory:planted", flows=flows) as engine:
        request = await engine.submit(Trip("rome"))
        await gesta.settle(days=1)
        await request.cancel()
        await gesta.settle(days=1)
    return undone


async def test_the_compensation_waits_while_a_step_is_unknown(gesta):
    assert await undone_while_unknown(gesta) == []  # R1-39


async def test_a_compensation_while_a_step_is_unknown_is_found(gesta, monkeypatch):
    def planted(state: State, operation: str = "") -> object:
        return "failed" if state.phase == "unknown" else result_of(state, operation)

    monkeypatch.setattr("gesta.sagas.run.result_of", planted)
    with pytest.raises(AssertionError):
        assert await undone_while_unknown(gesta) == []
