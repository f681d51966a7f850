from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gesta import Engine, Payload
from gesta.errors import BadSchedule
from gesta.maintenance.schedules import Schedule
from gesta.testing.plugin import Harness
from tests.world import Note, Provider, die, note_flow, pass_time

#: The clock of these tests begins at 2027-01-15T08:00:00Z, a Friday.
START = datetime(2027, 1, 15, 8, tzinfo=UTC)
HOUR_MS = 3_600_000


async def note(due: datetime) -> Note:
    return Note(f"{due.isoformat()}")


def schedule(cron: str, zone: str = "Europe/Berlin") -> Schedule:
    return Schedule(name="s", cron=cron, zone=zone, function=note)


def times(one: Schedule, after: datetime, count: int) -> list[str]:
    found, at = [], round(after.timestamp() * 1000)
    for _ in range(count):
        at = one.next_ms(at)
        assert one.latest_ms(at) == at
        assert one.latest_ms(at + 1) == at
        assert one.latest_ms(at + 59_999) == at
        found.append(one.moment(at).isoformat())
    return found


def test_the_times_are_those_of_the_zone_in_summer_and_in_winter():
    berlin = ZoneInfo("Europe/Berlin")
    assert times(schedule("0 7 * * 1-5"), datetime(2026, 10, 23, 12, tzinfo=berlin), 2) == [
        "2026-10-26T07:00:00+01:00",
        "2026-10-27T07:00:00+01:00",
    ]
    assert times(schedule("0 7 * * 1-5"), datetime(2026, 3, 27, 6, tzinfo=berlin), 2) == [
        "2026-03-27T07:00:00+01:00",
        "2026-03-30T07:00:00+02:00",
    ]


def test_a_time_that_the_clock_skips_is_made_up_for_once():
    """On 29 March 2026 there is no 02:30 in Berlin."""
    found = times(schedule("30 2 * * *"), datetime(2026, 3, 28, 0, tzinfo=ZoneInfo("UTC")), 3)
    assert found == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_the_clock_shows_twice_is_due_once():
    """On 25 October 2026 there are two 02:30 in Berlin."""
    found = times(schedule("30 2 * * *"), datetime(2026, 10, 24, 0, tzinfo=ZoneInfo("UTC")), 3)
    assert found == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_an_interval_goes_on_through_both_changes_of_the_clock():
    overlap = times(schedule("*/30 * * * *"), datetime(2026, 10, 24, 23, 59, tzinfo=UTC), 5)
    assert overlap == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]
    gap = times(schedule("*/30 * * * *"), datetime(2026, 3, 29, 0, 29, tzinfo=UTC), 3)
    assert gap == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:30:00+02:00",
    ]


def test_no_time_is_due_before_it_has_come():
    """The latest time of 07:00:59.5 is 07:00, also where every minute is one."""
    minutes = schedule("* * * * *")
    at = round(START.timestamp() * 1000)
    for late in (0, 1, 500, 59_000, 59_001, 59_500, 59_999):
        assert minutes.latest_ms(at + late) == at
        assert minutes.next_ms(at + late) == at + 60_000


def test_a_schedule_that_begins_while_the_clock_shows_an_hour_again_waits_for_the_next_day():
    """In Berlin, the second 02:45 of 25 October 2026 comes after the only due 02:30 of that day."""
    second = datetime(2026, 10, 25, 1, 45, tzinfo=UTC)
    daily = schedule("30 2 * * *")
    found = daily.next_ms(round(second.timestamp() * 1000))
    assert daily.moment(found).isoformat() == "2026-10-26T02:30:00+01:00"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["* * * * *", "*/30 * * * *", "30 1 * * *", "15 1,2,3 * * *"])
def test_the_latest_and_the_next_time_are_neighbours_on_every_side_of_a_change(cron, zone):
    one, random = schedule(cron, zone), Random(f"{cron} {zone}")
    changes = [
        datetime(2027, *day, tzinfo=UTC)
        for day in ((3, 14, 5), (3, 28, 1), (4, 3, 15), (10, 2, 15), (10, 31, 1), (11, 7, 5))
    ]
    for change in changes:
        for _ in range(6):
            now = round(change.timestamp() * 1000) + random.randrange(-3 * HOUR_MS, 3 * HOUR_MS)
            latest, following = one.latest_ms(now), one.next_ms(now)
            assert latest <= now < following
            assert one.next_ms(latest) == following


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cron": "0 7 * *"}, "five fields"),
        ({"cron": "0 0 7 * * 1-5"}, "five fields"),
        ({"cron": "0 25 * * *"}, "hour"),
        ({"cron": "0 0 30 2 *"}, "day"),
        ({"cron": None}, "five fields"),
        ({"zone": "Europe/Atlantis"}, "not a time zone"),
        ({"zone": "../etc/passwd"}, "not a time zone"),
        ({"zone": None}, "not a time zone"),
        ({"name": ""}, "name="),
        ({"function": print}, "async def"),
        ({"function": asyncio.Event().wait}, "one parameter"),
        ({"tenant": "a b"}, "63"),
    ],
)
def test_a_wrong_schedule_is_refused(wrong: dict[str, Any], text: str):
    right = {"name": "s", "cron": "0 7 * * 1-5", "zone": "Europe/Berlin", "function": note}
    with pytest.raises(BadSchedule, match=text):
        Schedule(**{**right, **wrong})


def engine_of(provider: Provider, function: Any = note, url: str = "memory:schedules") -> Engine:
    engine = Engine(url, flows=[note_flow(provider)])
    engine.every("0 * * * *", zone="Europe/Berlin", name="hourly")(function)
    return engine


def texts(provider: Provider) -> list[str]:
    return [payload.text for payload in provider.payloads]


async def test_a_function_runs_once_for_each_due_time(gesta):
    provider = Provider()
    async with engine_of(provider) as engine, engine_of(provider):
        await pass_time(gesta, 3 * 3600, step_seconds=60)
        found = await engine.find()
    # Each due time is the key of one request, whichever of the two processes had the role.
    assert sorted(view.state.key or "" for view in found) == [
        "schedule/hourly/2027-01-15T09:00Z",
        "schedule/hourly/2027-01-15T10:00Z",
        "schedule/hourly/2027-01-15T11:00Z",
    ]
    assert texts(provider) == [
        "2027-01-15T10:00:00+01:00",
        "2027-01-15T11:00:00+01:00",
        "2027-01-15T12:00:00+01:00",
    ]


async def test_after_downtime_the_latest_missed_time_is_made_up_for_and_no_other(gesta):
    provider = Provider()
    async with engine_of(provider):
        await pass_time(gesta, 5)
    gesta.advance(3 * 86_400)
    async with engine_of(provider):
        await pass_time(gesta, 30)
        assert texts(provider) == ["2027-01-18T09:00:00+01:00"]
        await pass_time(gesta, 3600, step_seconds=60)
    assert texts(provider)[1:] == ["2027-01-18T10:00:00+01:00"]


async def test_a_function_that_raises_is_called_again_for_the_same_time(gesta):
    provider, failures = Provider(), [RuntimeError("no"), RuntimeError("no")]

    async def raising(due: datetime) -> Note:
        if failures:
            raise failures.pop()
        return await note(due)

    async with engine_of(provider, raising) as engine:
        await pass_time(gesta, 3540, step_seconds=60)
        await pass_time(gesta, 61, step_seconds=1)
        (checkpoint,) = [
            one
            for one in await engine.pipeline.environment.stores.checkpoints.checkpoints()
            if one.name == "schedule/hourly"
        ]
        assert checkpoint.error.startswith("RuntimeError: no")
        await pass_time(gesta, 30, step_seconds=1)
    assert texts(provider) == ["2027-01-15T10:00:00+01:00"]


@pytest.mark.parametrize("turns", range(0, 120, 15))
async def test_a_process_may_die_during_a_run(gesta, calls, turns):
    provider = Provider()
    dying = engine_of(provider, several)
    await dying.start()
    await pass_time(gesta, 3540, step_seconds=60)
    gesta.advance(61)
    for _ in range(turns):
        await asyncio.sleep(0)
    await die(dying)
    async with engine_of(provider, several) as engine:
        await pass_time(gesta, 20)
        await gesta.settle(days=0.02)
        found = await engine.find()
    assert sorted(view.state.key or "" for view in found) == [
        "schedule/hourly/2027-01-15T09:00Z",
        "schedule/hourly/2027-01-15T09:00Z/1",
    ]


async def several(due: datetime) -> list[Payload]:
    return [Note("one"), Note("two")]


async def test_a_slow_function_delays_no_other(gesta: Harness):
    provider, gate = Provider(), asyncio.Event()
    engine = engine_of(provider)

    @engine.every("0 * * * *")
    async def slow(_due: datetime) -> None:
        await gate.wait()

    async with engine:
        await pass_time(gesta, timedelta(hours=2).total_seconds() + 5, step_seconds=60)
        assert len(texts(provider)) == 2


def test_two_schedules_of_one_name_are_refused():
    engine = engine_of(Provider())
    with pytest.raises(BadSchedule, match="already declared"):
        engine.every("0 * * * *", name="hourly")(note)


async def test_a_function_that_goes_on_raising_is_called_less_and_less_often(gesta):
    calls = []

    async def raising(due: datetime) -> Note:
        calls.append(due)
        raise RuntimeError("no")

    async with engine_of(Provider(), raising):
        await pass_time(gesta, 3540, step_seconds=60)
        await pass_time(gesta, 60 + 120, step_seconds=1)
    # After 1, 2, 4, 8 … seconds, each within a look of the timer.
    assert 5 <= len(calls) <= 9
