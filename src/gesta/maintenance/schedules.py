"""Runs functions at the times of a cron expression in a named time zone.

One process at a time does this (`Leases`). What a function returns is submitted under a key that
contains the due time, so a run that is repeated after a crash submits nothing twice. After
downtime the latest missed time is made up for, and only that one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from gesta.errors import BadSchedule, InvalidRequest, StoreError
from gesta.flows.flow import Payload
from gesta.flows.validation import tenant_errors
from gesta.intake.submit import Intake
from gesta.intake.submit_options import Options
from gesta.ports.checkpoints import Checkpoints, Move
from gesta.ports.leases import RENEWAL_SECONDS, Role
from gesta.ports.stores import Stores
from gesta.runtime.clock import sleep, spawn
from gesta.runtime.component import Process, repeat
from gesta.runtime.redaction import scrub

ROLE = "schedules"
#: A schedule keeps the time of its last run as a checkpoint with this prefix.
CHECKPOINT = "schedule/"
POLL_SECONDS = 1.0
#: Back-off after a function raised; it doubles until the next due time.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 300.0

Due = Callable[[datetime], Awaitable[Payload | Sequence[Payload] | None]]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A function and its times. Raises BadSchedule."""

    name: str
    #: Five fields: minute, hour, day of month, month, day of week.
    cron: str
    zone: str
    function: Due
    #: The tenant that it submits for.
    tenant: str = "default"

    def __post_init__(self) -> None:
        if error := _error(self):
            raise BadSchedule(str(self.name), error)

    @property
    def checkpoint(self) -> str:
        return f"{CHECKPOINT}{self.name}"

    def next_ms(self, after_ms: int) -> int:
        """The first due time after a moment, in epoch milliseconds."""
        from cronsim import CronSim

        times = map(_ms, CronSim(self.cron, self.moment(after_ms)))
        # While the clock shows an hour again, the search begins with its first time.
        return next(at for at in times if at > after_ms)

    def latest_ms(self, now_ms: int) -> int:
        """The last due time that has come."""
        from cronsim import CronSim

        # The search backwards begins before the moment it is given, a whole second.
        start = self.moment((now_ms // 1000 + 1) * 1000)
        latest = next(
            at for at in map(_ms, CronSim(self.cron, start, reverse=True)) if at <= now_ms
        )
        # While the clock shows an hour again, that search misses times of its first showing.
        while (following := self.next_ms(latest)) <= now_ms:
            latest = following
        return latest

    def moment(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, _zone(self.zone))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _zone(name: str) -> tzinfo:
    # With the first schedule, as cronsim is: zones and cron expressions take half a megabyte.
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _error(one: Schedule) -> str:
    from cronsim import CronSim, CronSimError

    if not isinstance(one.name, str) or not 0 < len(one.name) <= 100 or not one.name.isprintable():
        return "name= must have 1 to 100 characters; gesta stores the last run under it"
    try:
        zone = _zone(one.zone)
    except (KeyError, ValueError, OSError, TypeError):
        return f"{one.zone!r} is not a time zone; write one like 'Europe/Berlin' or 'UTC'"
    if not isinstance(one.cron, str) or len(one.cron.split()) != 5:
        return (
            f"{one.cron!r}: a cron expression has five fields: minute, hour, day of the month,"
            " month, day of the week"
        )
    try:
        next(CronSim(one.cron, datetime(2024, 1, 1, tzinfo=zone)))
    except CronSimError as error:
        return f"{one.cron!r}: {error}"
    except StopIteration:
        return f"{one.cron!r} is never due"
    if not inspect.iscoroutinefunction(one.function):
        return "the function must be an `async def` function"
    try:
        inspect.signature(one.function).bind(object())
    except TypeError:
        return "the function must take one parameter, the due time"
    return "; ".join(tenant_errors(one.tenant).values())


class Schedules:
    """The schedules of a process."""

    def __init__(
        self, schedules: Iterable[Schedule], *, intake: Intake, stores: Stores, process: Process
    ) -> None:
        self._intake, self._process = intake, process
        self._runtime = process.runtime
        self.role = Role(ROLE, owner=process.owner, leases=stores.leases, runtime=process.runtime)
        self.timers = [
            Timer(one, intake=intake, checkpoints=stores.checkpoints, process=process)
            for one in schedules
        ]

    async def run(self) -> None:
        """Run due schedules until cancelled, while this process has the role."""
        try:
            await repeat(self._turn, ROLE, self._process, outage=self._forget)
        finally:
            for timer in self.timers:
                timer.stop()

    async def _turn(self) -> None:
        if not await self.role.is_ours():
            self._forget()
            await sleep(self._runtime, RENEWAL_SECONDS)
            return
        for timer in self.timers:
            await timer.look()
        await sleep(self._runtime, POLL_SECONDS)

    def _forget(self) -> None:
        for timer in self.timers:
            timer.forget()


class Timer:
    """One schedule while this process has the role: it runs in a task of its own."""

    def __init__(
        self, schedule: Schedule, *, intake: Intake, checkpoints: Checkpoints, process: Process
    ) -> None:
        self.schedule, self._intake, self._checkpoints = schedule, intake, checkpoints
        self._runtime, self._telemetry = process.runtime, process.telemetry
        #: The due time of the last run; None: to be read.
        self._last: int | None = None
        self._next = 0
        self._failures, self._again_ms = 0, 0
        self._running: asyncio.Task[None] | None = None

    def forget(self) -> None:
        self._last = None

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def look(self) -> None:
        """Start a run if one is due and none is running."""
        now = self._runtime.now_ms()
        if self._running is not None and not self._running.done():
            return
        if self._last is None:
            last = await self._checkpoints.begin(self.schedule.checkpoint, now)
            self._last, self._next = last, self.schedule.next_ms(last)
        if now >= self._next and now >= self._again_ms:
            due = max(self._next, self.schedule.latest_ms(now))
            self._running = spawn(self._run(self._last, due), "gesta-schedule")

    async def _run(self, last: int, due: int) -> None:
        try:
            await self._submit(due)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 -- tried again, whatever it is
            await self._failed(error, due)
            return
        try:
            # False: another process has run it.
            await self._checkpoints.move([Move(self.schedule.checkpoint, last, due)])
        except StoreError as error:
            self._telemetry.store_failed(ROLE, error)
        self._failures = self._again_ms = 0
        # Read again, whichever process has moved it.
        self._last = None

    async def _submit(self, due: int) -> None:
        one, moment = self.schedule, self.schedule.moment(due)
        asked = await one.function(moment)
        payloads = [asked] if isinstance(asked, Payload) else list(asked or ())
        key = f"schedule/{one.name}/{moment.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
        answers = await self._intake.submit_each(
            [
                (payload, Options(f"{key}/{number}" if number else key, one.tenant))
                for number, payload in enumerate(payloads)
            ]
        )
        for answer in answers:
            if isinstance(answer, InvalidRequest):
                raise answer
            # A Conflict: a run before a crash has submitted it, with other content.
        self._telemetry.log.info("schedule ran", schedule=one.name, due=key, count=len(payloads))

    async def _failed(self, error: Exception, due: int) -> None:
        pause = min(PAUSE_SECONDS * 2**self._failures, PAUSE_SECONDS_MAX)
        self._failures += 1
        now = self._runtime.now_ms()
        self._again_ms = now + round(pause * 1000)
        text = scrub(f"{type(error).__name__}: {error}")
        self._telemetry.log.error(
            "schedule failed, tried again",
            schedule=self.schedule.name,
            due=self.schedule.moment(due).isoformat(),
            error=text,
            failures=self._failures,
            pauseSeconds=pause,
        )
        with suppress(StoreError):
            await self._checkpoints.note_error(self.schedule.checkpoint, text, now)
