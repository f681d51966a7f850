"""The steps of a copy; __init__.py lists them in order."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from gesta.domain.events import Actor
from gesta.domain.stream_names import checkpoint_of
from gesta.errors import StoreError
from gesta.maintenance.store_copy.comparison import Comparison
from gesta.maintenance.store_copy.plan import PAGE, CopyPlan, Home, check
from gesta.maintenance.store_copy.roles import Roles
from gesta.maintenance.store_copy.transfer import Transfer
from gesta.ports.job_queue import Job, QueueStanding
from gesta.ports.outbox import Prepared
from gesta.projector.partitions import positions_of
from gesta.projector.projector import Projector
from gesta.runtime.clock import Ids, OnClock, Runtime, sleep
from gesta.runtime.component import Process
from gesta.runtime.telemetry import Telemetry
from gesta.security.envelope_encryption import KeyRing, MasterKey
from gesta.tenants.config_writer import ConfigWriter
from gesta.tenants.pause_control import PauseControl
from gesta.tenants.templates.renderer import InlineRenderer
from gesta.worker.lease import LEASE_SECONDS

#: The log grows while it is copied. The copy catches up this many times; the rest is copied after
#: the fence.
ROUNDS = 20
LOOK_SECONDS = 0.1
#: How often to try to fence the source at a moment when no caller has just committed a request in
#: its own transaction.
FENCE_TRIES = 50
#: More than any store has pending.
ALL = 10**9

#: The current step, how much of it is done, and the total.
Progress = Callable[[str, int, int], None]
#: A message for the person who runs the copy.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class CopyReport:
    """What the target has from the source, now or since an earlier run (`is_new`).

    `possibly_executed`: jobs that may have been executed. `stored_jobs`: jobs of slow endpoints.
    """

    is_new: bool
    events: int = 0
    claims: int = 0
    secrets: int = 0
    jobs: int = 0
    stored_jobs: int = 0
    possibly_executed: int = 0


class Copy:
    def __init__(
        self,
        plan: CopyPlan,
        master: MasterKey,
        *,
        runtime: Runtime,
        progress: Progress,
        tell: Tell,
    ) -> None:
        source, target = plan.source, plan.target
        self._plan, self._source, self._target = plan, source, target
        self._master, self._progress, self._tell = master, progress, tell
        self._source_clock = OnClock(runtime, source.stores.now_ms)
        self._target_clock = OnClock(runtime, target.stores.now_ms)
        self._transfer = Transfer(plan)
        owner = f"copy:{Ids(runtime).new()}"
        self._roles = Roles(plan, owner, runtime)
        process = Process(self._target_clock, Ids(self._target_clock), Telemetry(), owner)
        self._projector = Projector(target.stores, process)

    async def run(self, wait_seconds: float, actor: Actor) -> CopyReport:
        """Copy, or continue a copy that was interrupted.

        `wait_seconds`: how long running attempts may take to end before the fence.
        """
        start = await check(self._plan, self._master)
        if start == "done":
            return CopyReport(is_new=False)
        await self._roles.hold()
        if start == "fresh":
            await self._finish_own_work()
        await self._target.stores.fences.put_up(self._plan.filling_fence)
        if not await self._is_left():
            await self._copy_bulk()
            await self._pause_and_fence(wait_seconds, actor)
        report = await self._copy_rest()
        await self._roles.release()
        return report

    async def _is_left(self) -> bool:
        return self._plan.left_fence in await self._source.stores.fences.standing()

    async def _finish_own_work(self) -> None:
        """What the target had before is dispatched as usual: what we append is not, and the mark
        for that is a position.
        """
        while await self._projector.step():
            await self._roles.hold()

    async def _copy_bulk(self) -> None:
        """Copy most of it, while the source stays in use."""
        await self._transfer.secrets()
        for _ in range(ROUNDS):
            total = await self._source.stores.events.end()
            while True:
                count, position = await self._transfer.events()
                await self._fold()
                await self._roles.hold()
                self._progress("events", position, max(total, position))
                if not count or position >= total:
                    break
            if await self._source.stores.events.behind(position) < PAGE:
                break
        if self._plan.tenant is None:
            await self._transfer.claims()

    async def _fold(self) -> None:
        """Views of what is copied, without a job for anything that the source has dispatched; the
        rest is left to the target's projector.

        What only some partitions of the source have dispatched counts as the rest: a job that is
        put twice stays one, and the worker that leases one
        that is done with finds its end in the stream.
        """
        source = self._source.stores
        dispatched = min(
            one.quiet_until for one in await positions_of(source.checkpoints, source.partitions)
        )
        await self._transfer.mark_dispatched(await self._transfer.position_after(dispatched))
        await self._projector.catch_up()

    async def _pause_and_fence(self, wait_seconds: float, actor: Actor) -> None:
        """From here on no attempt begins in the source, and soon nothing is written.

        The pause is copied, so the target starts paused.
        """
        pausing = self._pausing()
        await pausing.pause(self._plan.scope, f"copied to {self._target.url}"[:500], actor)
        leased = await self._drain(wait_seconds)
        if leased and self._plan.tenant is not None:
            # A tenant's fence stops its events but not the leases of workers: an attempt that still
            # runs could not record its outcome.
            await pausing.resume(self._plan.scope, actor)
            raise StoreError(
                f"{leased} attempts of tenant {self._plan.tenant} have not ended in"
                f" {self._source.url}; the tenant continues there, and nothing was sent from the"
                " copy. Repeat the copy with --wait; if a worker died during them, run `gesta"
                " serve` there to end them"
            )
        if not await self._fence():
            await pausing.resume(self._plan.scope, actor)
            raise StoreError(
                f"requests from callers' transactions wait in the outbox of {self._source.url};"
                " it continues as before, and nothing was sent from the copy. Check that `gesta"
                " worker` or `gesta serve` runs there (`gesta doctor` shows what waits), then"
                " repeat the copy"
            )
        if leased:
            players = ", ".join(await self._roles.source_players()) or "no process"
            self._tell(
                f"{leased} attempts were running when the source was fenced (processes:"
                f" {players}); their outcomes are unknown"
            )

    async def _fence(self) -> bool:
        """Whether the fence is up and the outbox has no committed requests left."""
        stores, fence = self._source.stores, self._plan.left_fence
        for _ in range(FENCE_TRIES):
            if stores.outbox is not None:
                waiting = await stores.outbox.waiting((), 0, (), PAGE)
                await stores.outbox.drain(
                    [(one.request_id, one.append) for one in waiting if isinstance(one, Prepared)]
                )
            await stores.fences.put_up(fence)
            if stores.outbox is None or await stores.outbox.count(1) == 0:
                return True
            await stores.fences.take_down(fence)
            await self._roles.hold()
            await sleep(self._source_clock, LOOK_SECONDS)
        return False

    async def _drain(self, wait_seconds: float) -> int:
        """How many attempts still run when the time is over."""
        until = self._source_clock.monotonic() + wait_seconds
        is_reported = False
        while leased := await self._leased():
            if self._source_clock.monotonic() >= until:
                break
            if not is_reported:
                is_reported = True
                self._tell(
                    f"the source is paused; waiting up to {wait_seconds:g} s for {leased} running"
                    " attempts to end"
                )
            await self._roles.hold()
            await sleep(self._source_clock, LOOK_SECONDS)
        return leased

    async def _leased(self) -> int:
        if self._plan.tenant is None:
            return sum(
                flow.leased
                for flow in (await self._source.stores.job_inspection.backlog()).values()
            )
        return sum(one.state == "leased" for one in await self._standing())

    async def _standing(self) -> list[QueueStanding]:
        """The live jobs of the source that are to be copied."""
        found: list[QueueStanding] = []
        after = ""
        while page := await self._source.stores.job_inspection.jobs(after, PAGE):
            after = page[-1].job.id
            found += [one for one in page if self._plan.has_job(one.job)]
            await self._roles.hold()
        return found

    def _pausing(self) -> PauseControl:
        stores, clock = self._source.stores, self._source_clock
        key_ring = KeyRing(stores.vault, self._master, clock)
        # It only pauses: no template is put.
        writer = ConfigWriter(
            flows={},
            declared={},
            events=stores.events,
            key_ring=key_ring,
            runtime=clock,
            reference=str,
            renderer=InlineRenderer(),
        )
        return PauseControl(writer, stores.job_holds)

    async def _copy_rest(self) -> CopyReport:
        """Copy what is left; the source is fenced and does not change."""
        leased = await self._leased()
        fenced_at = self._source_clock.monotonic()
        while (await self._transfer.events())[0]:
            await self._fold()
            await self._roles.hold()
        await self._fold()
        comparison = Comparison(self._plan, self._look)
        self._looked, self._to_look = 0, 2 * await self._source.stores.events.behind(0)
        expected = await comparison.read_source()
        claims, secrets = (
            await self._transfer.claims(comparison.others),
            await self._transfer.secrets(),
        )
        # From here on a repeated copy begins at the start: its checkpoint must not hold back
        # retention.
        await self._target.stores.checkpoints.forget(self._transfer.checkpoint)
        await comparison.check_events(expected)
        await comparison.check_claims()
        await comparison.check_secrets()
        stored_jobs = 0
        if self._plan.tenant is None:
            stored_jobs = await self._transfer.stored_jobs()
            await comparison.check_stored_jobs()
            await self._copy_subscriptions()
        jobs = await self._jobs()
        if leased:
            # A worker of the source can no longer renew its lease, so it makes no call after this.
            left = fenced_at + LEASE_SECONDS - self._source_clock.monotonic()
            await sleep(self._source_clock, max(0.0, left))
            await self._roles.hold()
        await self._target.stores.fences.take_down(self._plan.filling_fence, jobs)
        return CopyReport(
            is_new=True,
            events=expected.count,
            claims=claims,
            secrets=secrets,
            jobs=len(jobs),
            stored_jobs=stored_jobs,
            possibly_executed=sum(job.possibly_executed for job in jobs),
        )

    async def _look(self, count: int) -> None:
        self._looked += count
        self._progress("verified", self._looked, max(self._looked, self._to_look))
        await self._roles.hold()

    async def _copy_subscriptions(self) -> None:
        """Each continues after the event that it handled last."""
        for one in await self._source.stores.checkpoints.checkpoints():
            if one.name.startswith(checkpoint_of("")):
                await self._transfer.move(
                    one.name, await self._transfer.position_after(one.position)
                )

    async def _jobs(self) -> list[Job]:
        """The jobs of the source. Jobs that are or were leased are possibly executed."""
        found = {
            one.job.id: replace(
                one.job,
                possibly_executed=one.job.possibly_executed
                or one.takes > 0
                or one.state == "leased",
            )
            for one in await self._standing()
        }
        undispatched = self._source.stores.undispatched_jobs
        for job in [] if undispatched is None else await undispatched.undispatched(ALL):
            if self._plan.has_job(job):
                # A job that was put but not yet removed here is in the queue with all its state.
                found.setdefault(job.id, job)
        return list(found.values())


async def unfence(home: Home, tenant: str | None) -> bool:
    """Remove the fence of the source; returns whether it was fenced. It stays paused until it is
    resumed.
    """
    fences = [
        fence
        for fence in await home.stores.fences.standing()
        if fence.kind == "left" and fence.tenant == tenant
    ]
    for fence in fences:
        await home.stores.fences.take_down(fence)
    return bool(fences)
