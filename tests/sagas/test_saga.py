"""Sagas through the whole pipeline, on memory stores and a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gesta import (
    Abort,
    Attempt,
    Conflict,
    Done,
    Engine,
    Flow,
    Outcome,
    Payload,
    Refused,
    Rejected,
    Request,
    Retry,
    RetryPolicy,
    Saga,
    StepFailed,
    Unknown,
    saga,
)
from gesta.domain.commands import Rules
from gesta.errors import BadFlow

RULES = Rules(RetryPolicy(attempts=3, base_seconds=1.0), "manual")


class Book(Payload, frozen=True):
    what: str
    trip: str


class Unbook(Payload, frozen=True):
    what: str
    id: str


class Trip(Payload, frozen=True):
    name: str
    parts: tuple[str, ...] = ("flight", "hotel", "car")


class Agency:
    """What was booked and unbooked, in order; answers as the test says, then with success."""

    def __init__(self, **answers: list[Outcome]) -> None:
        self.answers, self.done = answers, list[str]()

    async def book(self, payload: Book, _: Attempt) -> Outcome:
        return self._do(f"book {payload.what}", Done(f"{payload.what}-{payload.trip}"))

    async def unbook(self, payload: Unbook, _: Attempt) -> Outcome:
        return self._do(f"unbook {payload.what}", Done())

    def _do(self, what: str, otherwise: Outcome) -> Outcome:
        planned = self.answers.get(what.replace(" ", "_"))
        outcome = planned.pop(0) if planned else otherwise
        self.done.append(f"{what}: {type(outcome).__name__}")
        return outcome

    @property
    def flows(self) -> list[Flow]:
        return [
            Flow("trip.book", Book, self.book, RULES),
            Flow("trip.unbook", Unbook, self.unbook, RULES),
        ]


@saga("saga.trip")
async def trip(payload: Trip, saga: Saga) -> None:
    for part in payload.parts:
        await saga.step(
            part,
            Book(part, payload.name),
            undo=lambda done, part=part: Unbook(part, done.id),
        )


def names(history: list[Any]) -> list[str]:
    return [name.split(".")[-2] for name, _, _ in history]


async def test_the_steps_of_a_saga_are_executed_one_after_the_other(gesta):
    agency = Agency()
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"), key="rome")
        assert await request.outcome() == Done()
        assert agency.done == ["book flight: Done", "book hotel: Done", "book car: Done"]
        view = await request.view()
        assert view.state.status == "completed"
        assert (await engine.submit(Trip("rome"), key="rome")).verdict == "duplicate"
        await gesta.settle()
        assert len(agency.done) == 3
        assert names(await engine.history(request.id))[:4] == [
            "RequestCreated",
            "StepStarted",
            "Suspended",
            "Woken",
        ]
        assert set(view.state.facts["steps"]) == {"flight", "hotel", "car"}


async def test_a_failed_step_undoes_the_earlier_ones_in_reverse_order(gesta):
    agency = Agency(book_car=[Rejected("sold_out")])
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        assert await request.outcome() == Rejected("compensated", "sold_out step car")
    assert agency.done == [
        "book flight: Done",
        "book hotel: Done",
        "book car: Rejected",
        "unbook hotel: Done",
        "unbook flight: Done",
    ]


async def test_nothing_is_undone_while_a_step_is_unknown(gesta):
    """The first car may be booked or not: the saga waits for a person's word on it."""
    agency = Agency(book_car=[Unknown("timeout")])
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        await gesta.settle(days=2)
        state = (await request.view()).state
        # S1-24, R1-39: the compensation waits while anything is unknown.
        assert (state.status, state.reason) == ("waiting", "waits_for_step")
        assert len(agency.done) == 3
        await request.cancel()
        await gesta.settle(days=2)
        assert (await request.view()).state.status == "waiting"
        assert len(agency.done) == 3
        car = await child(engine, request, "car")
        await car.resolve("executed", by="ada", evidence="the booking is in their list")
        await gesta.settle()
        assert (await request.view()).state.status == "compensated"
    assert agency.done[3:] == ["unbook car: Done", "unbook hotel: Done", "unbook flight: Done"]


async def test_a_step_that_failed_after_an_unknown_attempt_is_not_taken_for_failed(gesta):
    agency = Agency(book_car=[Unknown("timeout"), Rejected("sold_out")])
    flows = [
        Flow("trip.book", Book, agency.book, Rules(RULES.retry, "resend")),
        Flow("trip.unbook", Unbook, agency.unbook, RULES),
    ]
    async with Engine("memory", flows=[trip, *flows]) as engine:
        request = await engine.submit(Trip("rome"))
        await gesta.settle(days=2)
        car = await child(engine, request, "car")
        assert ((await car.view()).state.status, await request.status()) == ("failed", "waiting")
        await car.resolve("not_executed", by="ada", evidence="no booking in their list")
        await gesta.settle()
        assert await request.status() == "compensated"
    assert agency.done[4:] == ["unbook hotel: Done", "unbook flight: Done"]


async def test_an_undo_that_fails_ends_the_saga_until_it_is_redriven(gesta):
    agency = Agency(book_car=[Rejected("sold_out")], unbook_hotel=[Rejected("closed")])
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        outcome = await request.outcome()
        undo = await child(engine, request, "hotel", undo=True)
        assert outcome == Rejected(
            "compensation_failed", f"the undo of step hotel failed: request {undo.id}"
        )
        assert [view.state.id for view in await engine.find(status="failed", flow="saga.trip")] == [
            request.id
        ]
        await undo.redrive()
        await gesta.settle()
        assert await request.status() == "compensated"
    assert agency.done[3:] == [
        "unbook hotel: Rejected",
        "unbook hotel: Done",
        "unbook flight: Done",
    ]


async def test_a_step_that_succeeds_after_the_compensation_is_undone_too(gesta):
    agency = Agency(book_car=[Rejected("sold_out")])
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        await request.outcome()
        # A person executes the failed step again, although the saga was compensated.
        await (await child(engine, request, "car")).redrive()
        await gesta.settle()
        assert await request.status() == "compensated"
    assert agency.done[5:] == ["book car: Done", "unbook car: Done"]


class Careful(Payload, frozen=True):
    name: str


async def test_a_function_may_catch_a_failure_and_go_another_way(gesta):
    @saga("saga.careful")
    async def careful(payload: Careful, saga: Saga) -> None:
        try:
            await saga.step("flight", Book("flight", payload.name))
        except StepFailed as failed:
            await saga.step("train", Book(f"train after {failed}", payload.name))

    agency = Agency(book_flight=[Rejected("sold_out")])
    async with Engine("memory", flows=[careful, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        assert await request.outcome() == Done()
    assert agency.done == [
        "book flight: Rejected",
        "book train after step flight failed: sold_out: Done",
    ]


async def test_a_function_may_abort(gesta):
    @saga("saga.careful")
    async def careful(payload: Careful, saga: Saga) -> None:
        flight = await saga.step(
            "flight", Book("flight", payload.name), undo=lambda done: Unbook("flight", done.id)
        )
        if flight.id == "flight-rome":
            raise Abort("too_far")

    agency = Agency()
    async with Engine("memory", flows=[careful, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        assert await request.outcome() == Rejected("compensated", "too_far")
    assert agency.done == ["book flight: Done", "unbook flight: Done"]


async def test_a_cancelled_saga_is_undone(gesta):
    agency = Agency(book_hotel=[Retry("busy", after_seconds=60)])
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        await gesta.settle(days=10 / 86_400)
        assert agency.done == ["book flight: Done", "book hotel: Retry"]
        await request.cancel()
        await gesta.settle()
        # The hotel was on its way: its end was awaited, then it was undone.
        assert await request.status() == "compensated"
        assert await request.cancel() == "compensated"
    assert agency.done[2:] == ["book hotel: Done", "unbook hotel: Done", "unbook flight: Done"]


async def test_a_saga_that_takes_too_long_is_undone(gesta):
    @saga("saga.careful", ttl_seconds=30)
    async def careful(payload: Careful, saga: Saga) -> None:
        await saga.step("flight", Book("flight", payload.name), undo=Unbook("flight", "x"))
        await saga.step("hotel", Book("hotel", payload.name))

    agency = Agency(book_hotel=[Retry("busy", after_seconds=60)])
    async with Engine("memory", flows=[careful, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        await gesta.settle()
        assert (await request.view()).state.reason == "expired"
        assert await request.status() == "compensated"
    assert agency.done[2:] == ["book hotel: Done", "unbook flight: Done"]


async def test_a_step_cannot_begin_after_the_saga_was_cancelled(gesta):
    """A run that lost its lease may submit its step after the cancellation: the key is taken."""
    agency = Agency()
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        await engine.admin.pause(flow="saga.trip")
        request = await engine.submit(Trip("bern"))
        await gesta.settle(days=0.1)
        await request.cancel()
        await engine.admin.resume(flow="saga.trip")
        await gesta.settle()
        assert await request.status() == "cancelled"
        with pytest.raises(Refused, match="submit a new one"):
            await request.redrive()
        with pytest.raises(Conflict):
            await engine.submit(Book("flight", "bern"), key=f"saga/{request.id}/flight")
    assert agency.done == []


async def test_a_saga_may_be_a_step_of_another_one(gesta):
    @saga("saga.careful")
    async def careful(payload: Careful, saga: Saga) -> None:
        await saga.step("visa", Book("visa", payload.name), undo=Unbook("visa", "v"))
        await saga.step("trip", Trip(payload.name))

    agency = Agency(book_car=[Rejected("sold_out")])
    async with Engine("memory", flows=[careful, trip, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        assert await request.outcome() == Rejected("compensated", "sold_out step trip")
    assert agency.done[-3:] == ["unbook hotel: Done", "unbook flight: Done", "unbook visa: Done"]


async def test_a_function_that_awaits_anything_else_fails_with_advice(gesta):
    @saga("saga.careful", attempts=2)
    async def careful(payload: Careful, saga: Saga) -> None:
        await asyncio.sleep(1)
        await saga.step("flight", Book("flight", payload.name))

    agency = Agency()
    async with Engine("memory", flows=[careful, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        outcome = await request.outcome(timeout=600)
        assert isinstance(outcome, Rejected)
        history = await engine.history(request.id)
    assert outcome.reason == "max_attempts_exceeded"
    assert "a saga may await only its steps" in str(history)
    assert agency.done == []


async def test_a_function_that_was_changed_on_the_way_stops_and_goes_on_when_it_is_put_back(gesta):
    agency = Agency(book_hotel=[Retry("busy", after_seconds=60)])

    @saga("saga.trip")
    async def other(payload: Trip, saga: Saga) -> None:
        await saga.step("boat", Book("boat", payload.name))

    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        request = await engine.submit(Trip("rome"))
        await gesta.settle(days=10 / 86_400)
    async with Engine("memory", flows=[other, *agency.flows]) as engine:
        await gesta.settle()
        assert await (await engine.request(request.id)).status() == "failed"
        assert "no longer reaches them" in str(await engine.history(request.id))
        assert "book boat: Done" not in agency.done
    async with Engine("memory", flows=[trip, *agency.flows]) as engine:
        again = await engine.request(request.id)
        await again.redrive()
        await gesta.settle()
        assert await again.status() == "completed"
    assert agency.done[-1] == "book car: Done"


async def test_a_step_that_is_refused_at_submit_has_failed(gesta):
    @saga("saga.careful")
    async def careful(payload: Careful, saga: Saga) -> None:
        await saga.step("flight", Book("flight", payload.name), undo=Unbook("flight", "x"))
        await saga.step("hotel", Book("hotel", 7))  # type: ignore[arg-type]

    agency = Agency()
    async with Engine("memory", flows=[careful, *agency.flows]) as engine:
        request = await engine.submit(Careful("rome"))
        assert await request.outcome() == Rejected("compensated", "invalid_request step hotel")
    assert agency.done == ["book flight: Done", "unbook flight: Done"]


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: saga("order.trip"), "begins with 'saga.'"),
        (lambda: saga("saga.trip")(print), "async function"),  # type: ignore[arg-type]
        (lambda: Saga.step(None, "Bad Name", Book("a", "b")), "a name"),  # type: ignore[arg-type]
        (lambda: Saga.step(None, "a", "text"), "payload of a flow"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_declaration_is_refused(declare: Callable[[], Any], text: str):
    with pytest.raises(BadFlow, match=text):
        declare()


async def child(engine: Engine, saga: Request, step: str, *, undo: bool = False) -> Request:
    facts = (await saga.view()).state.facts
    return await engine.request(facts["undos" if undo else "steps"][step]["id"])
