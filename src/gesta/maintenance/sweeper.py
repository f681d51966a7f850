"""The sweeper: expires requests, dispatches requests that become due, and restores lost jobs.

It also runs further chores, such as retention, each with its own period. It never calls a provider.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from gesta.domain.commands import Expire
from gesta.domain.state import State
from gesta.errors import Fenced, StoreError
from gesta.flows.flow import Flow
from gesta.ports.leases import Role
from gesta.ports.read_model import FROM_THE_START, Cursor, Key, View, key_of
from gesta.ports.stores import Stores
from gesta.requests.dispatch import job_for
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, drop_job
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat

ROLE = "sweep"
PERIOD_SECONDS = 0.5
BATCH = 200
#: A request that has not changed is checked again after this time.
LOOK_AGAIN_MS = 60_000
#: How often requests are checked for a missing job, and how long a request must be unchanged
#: before.
LOST_PERIOD_SECONDS = 60.0
#: A failed chore runs again after this time, or after its period if that is longer.
FAILED_SECONDS = 5.0
LOST_BATCH = 2_000
LOST_AGE_MS = 60_000
#: A queue without UniqueJobs cannot say whether it has a job. A request that wants one and has not
#: moved for this long gets another copy of it, then again whenever that time has doubled, and in
#: the end each time it has passed so often again.
UNSEEN_AGE_MS = 15 * 60_000
UNSEEN_TIMES_MAX = 16


class Chore:
    """Something that the sweeper does at most once in a period."""

    def __init__(
        self, name: str, period_seconds: float, step: Callable[[], Awaitable[object]]
    ) -> None:
        self.name, self._period_seconds, self._step = name, period_seconds, step
        self._next_at = float("-inf")

    async def do(self, now: float) -> Exception | None:
        """The error if it fails: a failing chore does not prevent the others."""
        if now < self._next_at:
            return None
        self._next_at = now + self._period_seconds
        try:
            await self._step()
        except Exception as error:  # noqa: BLE001 -- the other chores must go on
            self._next_at = now + max(self._period_seconds, FAILED_SECONDS)
            return error
        return None


class Sweeper:
    def __init__(
        self,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        loader: Loader,
        recorder: Recorder,
        chores: Sequence[Chore],
        process: Process,
    ) -> None:
        self._flows, self._loader, self._recorder = flows, loader, recorder
        self._requests, self._queue, self._live_jobs = (
            stores.sweep_index,
            stores.queue,
            stores.live_jobs,
        )
        self._has_unique_jobs = stores.unique_jobs is not None
        self._chores = [*chores, Chore("lost_jobs", LOST_PERIOD_SECONDS, self._restore_lost_jobs)]
        self._process, self._runtime, self._telemetry = process, process.runtime, process.telemetry
        self.role = Role(ROLE, owner=process.owner, leases=stores.leases, runtime=process.runtime)
        #: When the next request has to be checked, for tests that control the clock.
        self.next_due_ms: int | None = None

    async def run(self) -> None:
        """Sweep until cancelled, while this process has the role."""
        await repeat(self._turn, ROLE, self._process, pause_seconds=PERIOD_SECONDS)

    async def _turn(self) -> None:
        if await self.role.is_ours():
            await self.step()
        else:
            self._telemetry.store_unseen()
        await sleep(self._runtime, PERIOD_SECONDS)

    async def step(self) -> None:
        """Process everything that is due."""
        while True:
            due, self.next_due_ms = await self._requests.due(self._runtime.now_ms(), BATCH)
            await self._deal_with(due)
            if len(due) < BATCH:
                break
        now = self._runtime.monotonic()
        for chore in self._chores:
            error = await chore.do(now)
            if error is not None:
                self._telemetry.chore_failed(chore.name, error)

    async def _deal_with(self, due: list[View]) -> None:
        """In bounded batches: processed requests are postponed, so the next batch has others."""
        if not due:
            return
        fresh = await self._fresh([view.state for view in due])
        now = self._runtime.now_ms()
        jobs = []
        looks: dict[Key, int | None] = {key_of(view.state): now + LOOK_AGAIN_MS for view in due}
        for view in fresh:
            state, flow = view.state, self._flows.get(view.state.flow)
            if (
                flow is not None
                and state.expires_at is not None
                and state.expires_at <= now
                and state.phase != "unknown"
            ):
                with suppress(Fenced):
                    # The tenant was copied to another store, which expires it.
                    await self._expire(view, flow)
            elif state.wants is not None and (state.due_at or 0) <= now:
                jobs.append(job_for(state))
                looks[key_of(state)] = _next_look(state, now)
        if jobs:
            await self._queue.put(jobs)
        await self._requests.postpone([(view.state, looks[key_of(view.state)]) for view in due])

    async def _fresh(self, states: list[State]) -> list[View]:
        """The requests as they are now.

        One whose stream cannot be read is left out: the projector has quarantined it.
        """
        try:
            found, _ = await self._loader.load([key_of(state) for state in states])
        except StoreError:
            raise
        except Exception:  # noqa: BLE001 -- whatever is wrong with one, the rest must go on
            return (
                []
                if len(states) == 1
                else [fresh for state in states for fresh in await self._fresh([state])]
            )
        return list(found.values())

    async def _expire(self, view: View, flow: Flow) -> None:
        # The job is dropped first; while a worker holds it, the end of the attempt decides.
        await self._recorder.apply(
            view, Expire(self._runtime.now_ms()), flow.rules, drop_job, causation_id=ROLE
        )

    async def _restore_lost_jobs(self) -> None:
        """Restore the jobs of requests that have none: the queue was lost, or the relay between two
        stores failed.
        """
        before_ms = self._runtime.now_ms() - LOST_AGE_MS
        cursor: Cursor | None = FROM_THE_START
        while cursor is not None:
            states, cursor = await self._requests.stale(before_ms, cursor, LOST_BATCH)
            ids = {state.job_id: state for state in states}
            live = await self._live_jobs(list(ids)) if ids else set()
            missing = [state for name, state in ids.items() if name not in live]
            if not self._has_unique_jobs:
                missing = [state for state in missing if self._is_unseen(state)]
            # In smaller batches: these are read with their payloads.
            for start in range(0, len(missing), BATCH):
                await self._restore(missing[start : start + BATCH])

    async def _restore(self, missing: list[State]) -> None:
        fresh = await self._fresh(missing)
        old = {key_of(state): state.version for state in missing}
        # One that has changed meanwhile is being worked on: its view only lags.
        lost = [
            view.state
            for view in fresh
            if view.state.version == old[key_of(view.state)] and view.state.wants is not None
        ]
        if lost:
            self._telemetry.log.warning("jobs restored", count=len(lost))
            await self._queue.put(
                [
                    # A queue without UniqueJobs cannot tell, so the journal decides.
                    job_for(
                        state,
                        possibly_executed=self._has_unique_jobs or state.started is not None,
                    )
                    for state in lost
                ]
            )

    def _is_unseen(self, state: State) -> bool:
        """Whether another copy of the job is put now: its request has not moved for UNSEEN_AGE_MS,
        twice, four, eight times that, and so on, reached since the last look.

        A running attempt is left alone for twice its time limit.
        """
        flow = self._flows.get(state.flow)
        if flow is None:
            # Jobs of undeclared flows are not executed.
            return False
        unseen_ms = max(UNSEEN_AGE_MS, round(2 * flow.timeout_seconds * 1000))
        age_ms = self._runtime.now_ms() - max(state.updated_at, state.due_at or 0)
        times, before = (
            one // unseen_ms for one in (age_ms, age_ms - round(LOST_PERIOD_SECONDS * 1000))
        )
        is_round = times & (times - 1) == 0 or times % UNSEEN_TIMES_MAX == 0
        return times > max(before, 0) and is_round


def _next_look(state: State, now_ms: int) -> int | None:
    """When to check a request again after a job was put for it.

    A job to execute is put once. If it is lost, its request is restored as possibly executed.
    """
    if state.wants == "reconcile":
        return now_ms + LOOK_AGAIN_MS
    ends_at = None if state.phase == "unknown" else state.expires_at
    return ends_at if ends_at is None else max(ends_at, now_ms + LOOK_AGAIN_MS)
