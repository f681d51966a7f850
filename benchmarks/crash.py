"""`make bench --crash`: SIGKILL in the middle of work, again and again, and how soon the
interrupted requests go on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from benchmarks.crew import Crew, crew
from benchmarks.load import percentile
from benchmarks.store import BenchStore
from gesta.demo.worker_process import WorkerProcess, until
from gesta.runtime.clock import sleep, spawn

STAGES = ("start", "one of two killed", "all killed", "count")
#: Requests a second, and how long the receiver takes for each: some are in the air at every moment.
RATE = 40
CALL_SECONDS = 0.25
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 30.0

#: (stage, done, of how many)
Tell = Callable[[str, int, int], None]


class CrashFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench --crash --json` prints.

    Seconds run from the kill until the end of an interrupted request is on record.
    """

    kills: int
    #: One worker killed, another process alive.
    interrupted: int
    recovery_p50_seconds: float
    recovery_p99_seconds: float
    #: Every worker killed, and started again at once.
    restarts: int
    restart_interrupted: int
    restart_p50_seconds: float
    restart_p99_seconds: float
    requests: int
    #: Counted at the receiver: accepted without an effect, and with more than one.
    lost: int
    doubled: int
    #: Calls that were made again under the same key, which the receiver made harmless.
    repeated: int
    seconds: float

    @property
    def errors(self) -> list[str]:
        counts = {"have no effect": self.lost, "have more than one effect": self.doubled}
        return [
            f"{count:,} of {self.requests:,} requests {what}"
            for what, count in counts.items()
            if count
        ]


async def measure_crashes(kills: int, store: BenchStore, tell: Tell) -> CrashFigures:
    """So many kills of one worker, and as many of all of them."""
    start = time.perf_counter()
    tell("start", 0, 1)
    async with crew(store) as members:
        members.backend.on(lambda _: True, slow_seconds=CALL_SECONDS)
        load = spawn(_submit(members), "bench-load")
        try:
            one = await _rounds(members, kills, tell, "one of two killed", _kill_one)
            every = await _rounds(members, kills, tell, "all killed", _kill_all)
        finally:
            load.cancel()
        tell("count", 0, 1)
        await _until_ended(members, [*members.ids])
        effects = Counter(effect.data["number"] for effect in members.backend.effects)
        receipts = [effect.receipts for effect in members.backend.effects]
    return CrashFigures(
        kills=kills,
        interrupted=len(one),
        recovery_p50_seconds=round(percentile(one, 50), 2),
        recovery_p99_seconds=round(percentile(one, 99), 2),
        restarts=kills,
        restart_interrupted=len(every),
        restart_p50_seconds=round(percentile(every, 50), 2),
        restart_p99_seconds=round(percentile(every, 99), 2),
        requests=len(members.ids),
        lost=sum(effects[number] == 0 for number in members.ids),
        doubled=sum(count > 1 for count in effects.values()),
        repeated=sum(receipts) - len(receipts),
        seconds=round(time.perf_counter() - start, 1),
    )


async def _submit(members: Crew) -> None:
    """At a fixed rate, for ever, also while processes are dead."""
    number, start = 0, time.perf_counter()
    while True:
        await sleep(members.runtime, max(0.0, start + number / RATE - time.perf_counter()))
        await members.submit(number)
        number += 1


async def _rounds(
    members: Crew,
    kills: int,
    tell: Tell,
    stage: str,
    kill: Callable[[Crew, set[int]], Awaitable[list[float]]],
) -> list[float]:
    """Kill while calls are under way; seconds of each request that was interrupted, sorted."""
    leased: list[float] = []
    done = 0
    while done < kills:
        tell(stage, done, kills)
        await until(
            members.runtime, lambda: _has_calls(members), "a worker to be in the middle of a call"
        )
        interrupted = await kill(members, await _callers(members))
        leased += interrupted
        # Should all of its calls have ended in the moment before it died, the kill does not count.
        done += bool(interrupted)
    return sorted(leased)


async def _kill_one(members: Crew, callers: set[int]) -> list[float]:
    """The other one lives and goes on with what was interrupted; the dead one comes back after
    that.
    """
    victim = next(
        (worker for worker in members.workers if worker.pid in callers), members.workers[0]
    )
    killed_at = time.perf_counter()
    await victim.kill()
    leased = await _seconds_until_ended(members, {victim.pid}, killed_at)
    await victim.start()
    return leased


async def _kill_all(members: Crew, _: set[int]) -> list[float]:
    """No process lives; all are started again together."""
    pids = {worker.pid for worker in members.workers}
    killed_at = time.perf_counter()
    for worker in members.workers:
        await worker.kill()
    # Looked at while they start: on a busy machine the first one is done with everything before the
    # second one is up.
    starting = spawn(_start(members.workers), "bench-start")
    try:
        leased = await _seconds_until_ended(members, pids, killed_at)
        await starting
    finally:
        starting.cancel()
    return leased


async def _start(workers: Sequence[WorkerProcess]) -> None:
    for worker in workers:
        await worker.start()


async def _has_calls(members: Crew) -> bool:
    return bool(await _callers(members))


async def _callers(members: Crew) -> set[int]:
    """The living processes that are in the middle of a call."""
    alive = {worker.pid for worker in members.workers}
    recent = await members.open_ones([*members.backend.caller][-RATE:])
    return {members.backend.caller[number] for number in recent} & alive


async def _seconds_until_ended(members: Crew, dead: set[int], killed_at: float) -> list[float]:
    """For each request that a dead process was in the middle of."""
    leased: list[float] = []
    left = await members.open_ones(
        number for number, pid in members.backend.caller.items() if pid in dead
    )
    patience = members.runtime.monotonic() + PATIENCE_SECONDS
    while left and members.runtime.monotonic() < patience:
        await sleep(members.runtime, LOOK_SECONDS)
        still = await members.open_ones(left)
        leased += [time.perf_counter() - killed_at] * (len(left) - len(still))
        left = still
    # What has not come to its end by now counts with all of the time that was waited.
    return leased + [PATIENCE_SECONDS] * len(left)


async def _until_ended(members: Crew, numbers: list[int]) -> None:
    async def have_ended() -> bool:
        return not await members.open_ones(numbers)

    await until(members.runtime, have_ended, "every request to come to its end", PATIENCE_SECONDS)
