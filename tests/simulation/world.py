"""A whole run: processes, stores, providers and users, first with faults, then healed until
everything has come to rest.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from functools import cache
from random import Random
from typing import Any, cast

from gesta.engine.environment import Environment, Wiring
from gesta.errors import GestaError, StoreError
from gesta.flows.validation import holds_times
from gesta.intake import submit as intake
from gesta.outbound.http import Transport
from gesta.ports.event_store import Recorded
from gesta.ports.job_queue import Job
from gesta.projector import projector as follow
from gesta.projector.partitions import checkpoints_of
from gesta.runtime.settings import Settings
from gesta.sandbox import SandboxTransport
from gesta.stores.memory.database import MemoryDatabase
from gesta.stores.memory.job_queue import MemoryJobQueue
from tests.simulation.checks import Broken, PromiseChecks
from tests.simulation.ears import Ears
from tests.simulation.loop import OWNER, SimulatedLoop, Stuck
from tests.simulation.options import CALM, Options
from tests.simulation.process import Network, Process, SimulatedRuntime
from tests.simulation.provider import Provider
from tests.simulation.users import Users

START_SECONDS = 1_800_000_000.0
#: Healed, everything has to come to rest within this: the latest delivery (20 minutes), retries,
#: skewed clocks.
REST_SECONDS = 7_200.0
REST_LASTS_SECONDS = 0.1
#: Time in which nothing can happen is skipped, but for this.
JUMP_MARGIN_SECONDS = 0.5
_holds_times = cache(holds_times)
#: The user who fixes refused credentials may have met a dead process, or come before the last
#: refusal.
FIXED_AFTER_SECONDS = (1.0, 10.0, 60.0)
#: The sweep looks for lost jobs this often.
LOST_SECONDS = 61.0


class World:
    #: The longest time that is skipped while a request wants a job.
    lost_seconds = LOST_SECONDS

    def __init__(self, options: Options) -> None:
        self.options, self.rates = options, options.rates
        self.random = Random(f"run {options.seed}")
        self.loop = SimulatedLoop(self.random, START_SECONDS)  # type: ignore[abstract]
        self.trace: list[tuple[float, str, str]] = []
        self.hits: Counter[str] = Counter()
        self._short: dict[str, str] = {}
        self._numbers = 0
        self.is_healed = False
        self.queue_was_lost = False
        self.lost_unrelayed: set[str] = set()
        self.broken: Broken | None = None
        self.database = MemoryDatabase(SimulatedRuntime(self.loop, self.random), options.partitions)
        self.queue_database = (
            MemoryDatabase(SimulatedRuntime(self.loop, self.random))
            if options.separate_queue
            else self.database
        )
        self.ears = Ears(self)
        self.provider = Provider(self)
        self.network = Network(self)
        self.checks = PromiseChecks(self)
        self.users = Users(self)
        self.processes: list[Process] = []
        #: When people look after what stands there at rest; None before that.
        self._people_at: float | None = None

    # What happens.

    def run(self) -> None:
        """The whole run; raises Broken when a promise does not hold."""
        wire, batch, level = Wiring.wire, follow.BATCH, logging.getLogger("gesta").level
        Wiring.wire, follow.BATCH = staticmethod(_wire), self.options.batch
        # Attempts record it: a run must not depend on who runs it.
        getpid = os.getpid
        setattr(os, "getpid", lambda: 1)  # noqa: B010 -- not offered
        # Looked up at every start of an engine, for the same few types: half of the time of a run.
        setattr(intake, "holds_times", _holds_times)  # noqa: B010 -- not offered
        logging.getLogger("gesta").setLevel(logging.CRITICAL + 1)
        try:
            self._live()
        except Stuck as stuck:
            self.breaks("it goes on, and comes to an end", str(stuck))
            raise self._broken() from None
        finally:
            Wiring.wire, follow.BATCH = staticmethod(wire), batch
            setattr(os, "getpid", getpid)  # noqa: B010 -- see above
            setattr(intake, "holds_times", holds_times)  # noqa: B010 -- see above
            logging.getLogger("gesta").setLevel(level)
            for process in self.processes:
                process.is_dead = True
            self.loop.end()

    def _live(self) -> None:
        options, random = self.options, self.random
        for number, skew_ms in enumerate(options.skews_ms):
            self._start(f"p{number}", skew_ms)
        self.users.plan()
        faults = (
            (self._kill, options.kills),
            (self._stop, options.stops),
            (self._lose_queue, options.queue_lost),
            (self._rebuild, options.rebuilds),
        )
        for act, times in faults:
            for _ in range(times):
                self.later(random.random() * options.seconds, act)
        self.later(options.seconds, self._heal)
        self._come_to_rest(options.seconds)
        self._people_at = self.loop.now + options.people_after_seconds
        self._go_on(lambda: self.loop.now >= (self._people_at or 0.0))
        self.note(None, "people look after it")
        self.users.look_after()
        self._fix_credentials()
        self._come_to_rest(0.0)
        self.users.is_done = True
        self._rebuild_and_compare()

    def _come_to_rest(self, seconds: float) -> None:
        """Liveness: with no more faults, everything ends or is visibly unknown, in bounded
        time.
        """
        end, rests_since = self.loop.now + seconds + REST_SECONDS, float("inf")

        def is_over() -> bool:
            # A process may be between two steps of the same work: rest is rest that lasts.
            nonlocal rests_since
            rests_since = (
                min(rests_since, self.loop.now)
                if self.is_healed and self._is_at_rest()
                else float("inf")
            )
            return self.loop.now > min(end, rests_since + REST_LASTS_SECONDS)

        self._go_on(is_over)
        self.checks.at_rest()
        self._check()

    def _go_on(self, is_over: Callable[[], bool]) -> None:
        self.loop.run(lambda: self.broken is not None or is_over(), self._jump_to)
        self._check()

    def _rebuild_and_compare(self) -> None:
        """Views are disposable: folded anew they are the same, and nothing is put or sent again."""
        self.note(None, "rebuild, and compare")
        for process in self.processes:
            process.is_dead = True
        before, calls = self.checks.views(), len(self.trace_of_calls)
        keeper = self._start("rebuilder", 0, work=False)
        self._go_on(lambda: keeper.is_ready)
        rebuilding = keeper.spawn(keeper.engine.admin.rebuild())
        self._go_on(rebuilding.done)
        self.checks.rebuilt(before)
        # As after a clean stop: the process that starts now is projector and sweeper at once.
        self.database.read_model._roles.clear()
        after = self._start("after", 0)
        end = self.loop.now + 1.5
        self._go_on(lambda: after.is_ready and self.loop.now > end)
        self.checks.nothing_new(calls)
        self._check()

    def _start(self, name: str, skew_ms: int, *, work: bool = True) -> Process:
        process = Process(self, name, skew_ms, work=work)
        self.processes.append(process)
        _ = process.spawn(process.start())
        return process

    def crash(self, process: Process, why: str) -> None:
        """The process is gone, and another one comes up in its place after a while."""
        if process.is_dead:
            return
        process.is_dead = True
        self.hit("crash")
        self.note(process, f"crashes ({why})")
        for calls in self.provider.calls.values():
            for call in calls:
                if call.process is process and not call.is_over:
                    self.hit("crash_after_effect" if call.has_effect else "crash_before_effect")
        self.later(
            0.05 if self.is_healed else self.random.choice([0.1, 1.0, 6.0]), self._restart, process
        )

    def _restart(self, process: Process) -> None:
        if any(one.name == "rebuilder" and not one.is_dead for one in self.processes):
            self.later(0.5, self._restart, process)
            return
        name, _, life = process.name.partition("'")
        self._start(f"{name}'{int(life or 0) + 1}", process.skew_ms)

    def freeze(self, process: Process) -> None:
        if process.is_frozen or process.is_dead:
            return
        seconds = self.random.choice([0.5, 6.0, 6.0, 20.0])
        self.hit("freeze" if seconds < 5 else "freeze_past_lease")
        self.note(process, f"stands still for {seconds} s")
        process.is_frozen = True
        self.later(seconds, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.is_frozen and not process.is_dead:
            self.note(process, "goes on")
            self.loop.resume(process)

    def _kill(self) -> None:
        if alive := [process for process in self.processes if not process.is_dead]:
            self.crash(self.random.choice(alive), "killed")

    def _stop(self) -> None:
        if up := [process for process in self.processes if process.is_up]:
            process = self.random.choice(up)
            self.hit("clean_stop")
            self.note(process, "is to stop")
            process.spawn(process.stop()).add_done_callback(
                lambda _: self.later(0.1, self._restart, process)
            )

    def _lose_queue(self) -> None:
        self.hit("queue_lost")
        self.note(None, f"the queue is lost with {len(self.queue._rows)} jobs")
        self.queue_was_lost = True
        # Put, and not yet forgotten by the relay: it will put them once more, as if for the first
        # time (docs/guarantees.md, G3).
        self.lost_unrelayed |= {row.job.request_id for row in self.queue._rows.values()} & {
            job.request_id for job in self.database.read_model._undispatched.first(10_000)
        }
        self.queue.__init__(SimulatedRuntime(self.loop, self.random))  # type: ignore[misc]

    def _rebuild(self) -> None:
        """A person rebuilds the views while everything else goes on, and may die of it."""
        up = [process for process in self.processes if process.is_up]
        if up and not self.is_healed:
            process = self.random.choice(up)
            _ = process.spawn(self._rebuild_by(process))

    async def _rebuild_by(self, process: Process) -> None:
        self.hit("rebuild_begun")
        self.note(process, "rebuilds")
        try:
            await process.engine.admin.rebuild()
        except GestaError as error:
            self.hit("rebuild_failed" if isinstance(error, StoreError) else "rebuild_refused")
            self.note(process, f"has not rebuilt: {error}")
        else:
            self.hit("rebuild_done")
            self.note(process, "has rebuilt")

    def _heal(self) -> None:
        """No more faults. From here on everything has to come to its end by itself."""
        self.note(None, "healed")
        self.is_healed, self.rates = True, CALM
        for process in self.processes:
            self._resume(process)
        self._fix_credentials()

    def _fix_credentials(self) -> None:
        """No provider refuses anything any more."""
        for seconds in FIXED_AFTER_SECONDS if self.hits["provider_refused"] else ():
            self.later(seconds, self.users.fix_credentials)

    def transport(self, process: Process) -> Transport:
        """How a process reaches providers by HTTP. The providers of this world are no HTTP."""
        return SandboxTransport(process.runtime)

    # What is known.

    @property
    def queue(self) -> MemoryJobQueue:
        return self.queue_database.queue

    @property
    def log(self) -> list[Recorded]:
        return [recorded for recorded in self.database.events._log if recorded is not None]

    @property
    def projected(self) -> int:
        """Up to where every partition is projected."""
        return min(
            self.database.read_model._checkpoints.get(name, 0)
            for name in checkpoints_of(self.options.partitions)
        )

    def _is_at_rest(self) -> bool:
        database = self.database
        alive = [process for process in self.processes if not process.is_dead]
        if self.queue._rows or self.users.is_busy or not any(process.is_up for process in alive):
            return False
        if (
            self.provider.is_busy
            or self.ears.is_behind
            or database.read_model._undispatched.first(1)
        ):
            return False
        if self.projected < len(database.events._log):
            return False
        return all(view.state.wants is None for view in database.read_model._rows.values())

    def _jump_to(self) -> float:
        """The next moment at which something can happen that is not housekeeping.

        Nothing may be under way: leases would run out.
        """
        database, alive = (
            self.database,
            [process for process in self.processes if not process.is_dead],
        )
        if (
            not self.is_healed
            or self.users.is_busy
            or self.provider.on_the_way
            or any(process.before + process.after for process in alive)
        ):
            return 0.0
        if any(any(one.jobs.values()) for one in self.queue._leases.values()) or not all(
            p.is_up for p in alive
        ):
            return 0.0
        if self.ears.is_behind or database.read_model._undispatched.first(1):
            return 0.0
        if self.projected < len(database.events._log):
            return 0.0
        slowest_ms = min((process.skew_ms for process in alive), default=0)
        moments = (
            []
            if self._people_at is None or self._people_at < self.loop.now
            else [self._people_at + JUMP_MARGIN_SECONDS]
        )
        moments += [row.available_ms / 1000 for row in self.queue._rows.values()]
        moments += [(at_ms - slowest_ms) / 1000 for at_ms in database.read_model._sweep_at.values()]
        if database.read_model._wanting._keys:
            moments.append(self.loop.now + self.lost_seconds)
        return min(moments, default=0.0) - JUMP_MARGIN_SECONDS

    def chance(self, rate: float) -> bool:
        return rate > 0 and self.random.random() < rate

    def later(self, seconds: float, act: Callable[..., object], *args: Any) -> None:
        """The world's own timer: it belongs to no process."""
        self.loop.call_later(seconds, act, *args, context=Context())

    def hit(self, what: str) -> str:
        self.hits[what] += 1
        return what

    def note(self, process: Process | None, what: str) -> None:
        self.trace.append(
            (self.loop.now - START_SECONDS, "" if process is None else process.name, what)
        )

    def short(self, request_id: str) -> str:
        return self._short.setdefault(request_id, f"r{len(self._short) + 1}")

    def stored(self, process: Process, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        """A store call had its effect."""
        self.note(process, verb)
        if verb == "queue.put":
            self.checks.put(cast("list[Job]", args[0]))
        elif verb == "queue.take":
            self.checks.take(process)
        elif verb == "leases.share" and 0 < len(answer) < self.options.partitions:
            self.hit("partitions_shared")
        elif verb in ("transactions.append", "transactions.record"):
            projection = args[1] if len(args) > 1 else None
            if projection is not None and projection.reached is not None:
                self.hit("projected_at_once")
                self.checks.projected(projection.jobs)
        elif verb in ("transactions.project", "undispatched_jobs.save_with_jobs") and args[3]:
            if answer:
                self.checks.projected(cast("list[Job]", args[1]))
            else:
                self.hit("projector_overtaken")

    @property
    def trace_of_calls(self) -> list[str]:
        return [what for _, _, what in self.trace if what.startswith("calls ")]

    def breaks(self, promise: str, detail: str) -> None:
        """A promise does not hold: the run ends here.

        Never raised where it happens, because engines survive exceptions.
        """
        if self.broken is None:
            self.note(None, f"BROKEN: {promise}: {detail}")
            self.broken = Broken(promise, detail)

    def _check(self) -> None:
        if self.broken is not None:
            raise self._broken()

    def _broken(self) -> Broken:
        assert self.broken is not None
        return self.broken

    def digest(self) -> str:
        """Differs for two runs that differ in anything: the trace, how many steps it took, and
        where the dice stand.
        """
        digest = hashlib.sha256(
            repr((self.trace, self.loop.steps, self.random.getstate())).encode()
        )
        for event in self.log:
            digest.update(event.id + event.type.encode() + event.data + event.meta)
        return digest.hexdigest()


async def _wire(_settings: Settings) -> Environment:
    """The engine that starts belongs to the process whose code this is."""
    return cast("Process", OWNER.get()).environment()
