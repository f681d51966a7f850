"""Bugs planted into the engine, each with the promise that finds it.

Patched in by a test: the product has no switch for them.

A bug that needs a real database to be seen (a token check in SQL, say) is planted in
tests/contracts/faults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gesta.domain import events as e
from gesta.domain.commands import Redrive, Rules
from gesta.domain.ids import idempotency_key
from gesta.domain.operation import decide as deciding
from gesta.domain.outcome import Done, Outcome, Retry, Unknown
from gesta.domain.state import State
from gesta.engine import request
from gesta.intake.submit import Accepted, Intake
from gesta.intake.submit_options import Options
from gesta.ports.checkpoints import Move
from gesta.ports.job_queue import Ack, Drop, LeasedJob, Settled, Settlement
from gesta.ports.transactions import Entry, Projection
from gesta.projector import partitions
from gesta.projector.batch_fold import Folding
from gesta.projector.partitions import projected_position
from gesta.projector.projector import Projector
from gesta.projector.rebuild import Rebuild
from gesta.requests.loader import Loader
from gesta.requests.recorder import Applied, no_job
from gesta.security.subject_keys import Ref
from gesta.stores.memory.job_queue import MemoryJobQueue
from gesta.stores.memory.read_model import MemoryReadModel
from gesta.stores.memory.transactions import MemoryTransactions
from gesta.stores.memory.vault import MemoryVault
from gesta.stores.separate_queue import SeparateTransactions
from gesta.subscriptions.handlers import Subscriber
from gesta.tenants.pause_control import PauseControl
from gesta.testing.contracts.job_settlements import SettleContract
from gesta.worker import attempt
from gesta.worker import pool as worker_pool
from gesta.worker import preflight as guard
from gesta.worker.attempt import Attempts, Running
from gesta.worker.eager_dispatch import EagerDispatcher
from gesta.worker.outcome_sanitizer import sound
from gesta.worker.pool import Pool
from tests.simulation.options import Rates

# The code as it is, for bugs that change only a part of what it does.
submit, record_of, judge, redrive, record = (
    Intake.submit,
    Attempts._record,
    MemoryJobQueue.judge,
    deciding._redrive,
    deciding._record,
)
examine, load, run, build, move = (
    guard.examine,
    Loader.load,
    Attempts.run,
    Rebuild._build,
    Subscriber._move,
)


@dataclass(frozen=True)
class Bug:
    """`where.name` is replaced by `planted`; one of `found_by` is what the simulation has to
    report.
    """

    where: Any
    name: str
    planted: Any
    found_by: frozenset[str]
    #: What makes it likely to be met: options other than those of the seed.
    tuned: Mapping[str, Any] = field(default_factory=dict)
    #: Suite and promise that find it where the simulation does not reach.
    contract: tuple[type[Any], Any] | None = None


#: Within so many seeds a bug has to be found.
SEEDS_MAX = 400
#: Bug → the seed that found it when they were last looked for: `python -m tests.simulation --pin`.
#: It is tried first; code that draws a random number or awaits may move a bug to another seed.
PINNED = Path(__file__).with_name("pinned.json")

BUGS: dict[str, Bug] = {}


def plants(
    where: Any,
    name: str,
    *found_by: str,
    contract: tuple[type[Any], Any] | None = None,
    **tuned: Any,
) -> Callable[[Any], Any]:
    """Make a function a bug, called after the function."""

    def plant(planted: Any) -> Any:
        assert hasattr(where, name), (
            f"{where} has no {name}: the bug {planted.__name__} is planted nowhere"
        )
        BUGS[planted.__name__] = Bug(where, name, planted, frozenset(found_by), tuned, contract)
        return planted

    return plant


@plants(
    Intake, "submit", "what was accepted exists", "an accepted request is known to every process"
)
async def accepted_before_it_is_on_disk(self: Intake, payload: Any, options: Options) -> Accepted:
    draft = self._draft(payload, options)
    if draft.flow.name in self._plans:
        return await submit(self, payload, options)
    _ = self._commit.add(self._append(draft, draft.body))
    return Accepted(draft.flow.name, options.tenant, draft.request_id, "created")


@plants(
    Attempts,
    "_record",
    "no job is lost unless the queue is",
    "what happened is sent, or unknown",
    rates=Rates(crash_at_store=0.02),
    queue_lost=False,
    separate_queue=False,
)
async def acked_before_it_is_recorded(
    self: Attempts, running: Running, *rest: Any, **options: Any
) -> Applied:
    leased = running.leased
    await self._recorder.settle(Ack(leased.job.id, leased.token), insist=True)
    return await record_of(self, running, *rest, **options)


# Late outcomes are stopped by the stream's version before their token matters: only the contract
# sees it for sure.
@plants(
    MemoryJobQueue,
    "judge",
    contract=(SettleContract, SettleContract.test_only_the_holder_can_ack_or_release),
)
def no_token_check(self: MemoryJobQueue, settlement: Settlement) -> Settled:
    row = self._rows.get(settlement.job_id)
    return judge(self, settlement) if row is None or isinstance(settlement, Drop) else "done"


@plants(
    Loader,
    "load",
    "attempts are counted from events",
    "nothing is called that is over, unknown or cancelled",
    "no job is lost unless the queue is",
    "every attempt of an intent has the same key",
    rates=Rates(provider=0.6, crash_at_store=0.01),
    batch=1,
)
async def guard_without_stream_head(self: Loader, keys: Any, also: Any = ()) -> Any:
    found = await self._views.get(keys)
    missing = [key for key in keys if key not in found]
    return found | (await load(self, missing))[0], await self._events.read(list(also))


@plants(
    attempt,
    "idempotency_key",
    "every attempt of an intent has the same key",
    "one effect for each request, unless a person forced another",
)
def new_key_on_retry(tenant: str, request_id: str, operation: str, intent: int) -> str:
    return f"{idempotency_key(tenant, request_id, operation, intent)}:{next(_fresh)}"


_fresh = count()


@plants(
    Projector,
    "step",
    "everything comes to rest",
    "what was accepted exists",
    "views are what their events say",
    rates=Rates(crash_at_store=0.02),
)
async def checkpoint_before_effect(self: Projector, *, again: bool = False) -> int:
    positions = self._positions or await self._read_positions()
    span = positions.next_span(again=again)
    if span is None:
        return 0
    batch, reached = await self._next_events(span)
    if reached == span.position:
        return 0
    if not await self._checkpoints.move(positions.moves(span, reached)):
        self._positions = None
        return 0
    views, jobs, quarantined, _ = await self._folding.fold(batch, span.quiet_until)
    await self._transactions.project(views, jobs, quarantined, [Move("no one's", 0, 0)])
    positions.moved(span.numbers, reached)
    return reached - span.position


@plants(Rebuild, "_build", "a rebuild dispatches nothing")
async def rebuild_that_dispatches(self: Rebuild, role: Any, progress: Any) -> int:
    """Every opening that it meets becomes a job once more."""
    shadow = await self._views.shadow()
    folding = Folding(self._events, shadow.get, self._process)
    for recorded in await self._events.follow(
        0, await projected_position(self._checkpoints, self._count)
    ):
        views, jobs, *_ = await folding.fold([recorded], quiet_until=0)
        await shadow.save(views)
        await self._projector._transactions.project([], jobs, [], [Move("no one's", 0, 0)])
    return await build(self, role, progress)


@plants(
    MemoryTransactions,
    "_project",
    "it goes on, and comes to an end",
    "views are what their events say",
    "everything comes to rest",
    "no job is lost unless the queue is",
    inline=True,
    separate_queue=False,
)
def projection_over_what_lies_between(
    self: MemoryTransactions, appends: Any, projection: Projection, before: int
) -> None:
    """Wherever the checkpoints stand, they are moved to the end."""
    after = self._events.length
    for name in projection.checkpoints:
        self._views._checkpoints[name] = after
    self._views.save_all(projection.views, [], [])
    for job in projection.jobs:
        self._queue.put_one(job)
    projection.reached = after


@plants(
    partitions,
    "Move",
    "a rebuild dispatches nothing",
    rates=Rates(freeze=0.1, store_slow=0.05),
    rebuilds=16,
    submits=7,
    skews_ms=(0, 0),
)
def projector_that_does_not_see_a_swap(
    name: str, before: int, after: int, _dispatched: int
) -> Move:
    return Move(name, before, after)


@plants(
    MemoryReadModel,
    "_fits",
    "a rebuild dispatches nothing",
    "everything comes to rest",
    rates=Rates(freeze=0.03, store_slow=0.05),
    rebuilds=0,
    partitions=3,
    submits=7,
    skews_ms=(0, 0),
)
def owner_that_writes_without_comparing(_self: MemoryReadModel, _move: Move) -> bool:
    return True


@plants(
    MemoryVault,
    "delete",
    "an erased person's keys are gone for ever",
    payloads=("Encrypted",),
    erases=4,
)
async def erased_key_stays(self: MemoryVault, refs: Sequence[Ref]) -> None:
    """Nothing is done."""


@plants(
    Subscriber,
    "_move",
    "every end is notified",
    rates=Rates(crash_at_store=0.02, provider=0.5),
    ears=True,
)
async def position_saved_before_the_notification(self: Subscriber) -> None:
    self._delivered = max(
        self._delivered, *(one.position for one in await self._events.follow(self._delivered, 5)), 0
    )
    await move(self)


@plants(
    deciding,
    "_redrive",
    "one effect for each request, unless a person forced another",
    "what happened is sent, or unknown",
    rates=Rates(provider=0.8),
    decisions=8,
    payloads=("Asked", "Left"),
)
def redrive_as_a_new_intent_while_unknown(
    state: State, command: Redrive, *rest: Any
) -> list[e.Event]:
    return redrive(replace(state, in_doubt=False), command, *rest)


@plants(
    request,
    "drop_job",
    "nothing is cancelled while it is called",
    "two never call at once",
    "what happened is sent, or unknown",
    "one effect for each request, unless a person forced another",
    rates=Rates(provider=0.6),
    decisions=16,
    submits=7,
)
def cancel_that_does_not_drop(before: State, after: State) -> None:
    return no_job(before, after)


@plants(
    SeparateTransactions,
    "_drop",
    "nothing is cancelled while it is called",
    "nothing is called that is over, unknown or cancelled",
    "two never call at once",
    "one effect for each intent",
    "a careless flow doubles only what was unknown",
    "the caller holds the lease",
    "two never call at once",
    rates=Rates(store_slow=0.08),
    decisions=40,
    submits=14,
    seconds=3.0,
    skews_ms=(0, 0, 0),
    separate_queue=True,
    queue_leases_early=False,
    queue_lost=False,
    partitions=3,
)
async def dropped_job_leaves_its_place_free(
    self: SeparateTransactions, entries: Sequence[Entry]
) -> dict[int, Settled]:
    drops = {
        n: entry.settlement for n, entry in enumerate(entries) if isinstance(entry.settlement, Drop)
    }
    return dict(zip(drops, await self._queue.settle([*drops.values()]), strict=True))


@plants(
    attempt,
    "examine",
    "one effect for each intent",
    "what happened is sent, or unknown",
    "no process asks the queue in a tight loop",
)
def lost_attempts_look_clean(
    state: State, leased: LeasedJob, now_ms: int, rules: Rules
) -> guard.Finding:
    return examine(replace(state, started=None), guard._clean(leased), now_ms, rules)


@plants(
    deciding,
    "_record",
    "a success is final",
    rates=Rates(provider=0.7, freeze=0.012),
    payloads=("Deduping",),
    seconds=15.0,
    submits=7,
    skews_ms=(0, 0, 0),
)
def late_failure_overwrites_success(state: State, command: Any, *rest: Any) -> list[e.Event]:
    if state.status == "completed" and not isinstance(command.outcome, Done):
        return [e.Failed("late", state.attempts)]
    return record(state, command, *rest)


@plants(
    deciding,
    "done",
    "evidence of success is never lost",
    "a careless flow doubles only what was unknown",
    "no process asks the queue in a tight loop",
    "it goes on, and comes to an end",
)
def late_success_is_dropped(state: State, outcome: Done, number: int, *_: object) -> list[e.Event]:
    return (
        []
        if state.is_terminal or state.status == "unknown"
        else [e.Completed(max(number, state.attempts), outcome.id)]
    )


@plants(
    attempt,
    "sound",
    "one effect for each intent",
    "what happened is sent, or unknown",
    "one effect for each request, unless a person forced another",
    rates=Rates(provider=0.8),
    payloads=("Asked", "Left"),
)
def missing_answer_counts_as_failure(answer: object) -> Outcome:
    outcome = sound(answer)
    return Retry(outcome.reason) if isinstance(outcome, Unknown) else outcome


class Hope:
    """A lease that is believed in."""

    def covers(self, _token: str) -> bool:
        return True


@plants(
    Attempts,
    "run",
    "the caller holds the lease",
    "two never call at once",
    rates=Rates(freeze=0.03),
    skews_ms=(0, 0),
)
async def calls_without_a_lease(self: Attempts, running: Any) -> None:
    running.lease = Hope()
    await run(self, running)


@plants(
    deciding,
    "_key_protects",
    "one effect for each intent",
    rates=Rates(provider=1.0),
    payloads=("Forgetting",),
    skews_ms=(0, 0),
    seconds=15.0,
    submits=7,
    people_after_seconds=400.0,
)
def key_trusted_for_ever(state: State, at: int, rules: Rules) -> bool:
    return True


@plants(
    guard,
    "_began",
    "one effect for each intent",
    "what happened is sent, or unknown",
    rates=Rates(crash_at_provider=0.2),
    payloads=("Asked", "Left"),
    skews_ms=(-300_000, 250_000),
    decisions=8,
    submits=7,
)
def slow_clock_makes_a_lost_attempt_clean(due_ms: int, leased: LeasedJob) -> bool:
    return False


@plants(
    Pool,
    "_await_release",
    "two never call at once",
    "a careless flow doubles only what was unknown",
    "the caller holds the lease",
    rates=Rates(answer_lost=0.15, provider=0.5),
    payloads=("Deduping", "Careless"),
    submits=7,
    inline=False,
)
def job_that_came_back_is_begun_before_its_release_was_answered(
    self: Pool, leased: LeasedJob
) -> None:
    self._holding[leased.job.id] = leased
    self._start(self._begin([leased]))


@plants(
    EagerDispatcher,
    "asks",
    "no flow has more calls at once than slots",
    payloads=("Deduping",),
    submits=14,
)
def takes_more_than_there_are_slots(self: EagerDispatcher, _flow: str, _slots: int) -> int:
    return 10


@plants(
    PauseControl,
    "_unhold",
    "everything comes to rest",
    "it goes on, and comes to an end",
    rates=Rates(deferred=0.8),
    submits=7,
)
async def what_was_resumed_stays_held(self: PauseControl, scope: str) -> int:
    return 0


BUGS["fast_clock_asks_in_a_tight_loop"] = Bug(
    worker_pool,
    "CLOCK_PAUSE_SECONDS",
    0.001,
    frozenset({"no process asks the queue in a tight loop"}),
    {"skews_ms": (300_000,)},
)
BUGS["slow_clock_takes_in_a_tight_loop"] = Bug(
    guard,
    "CLOCK_PAUSE_MS",
    0,
    frozenset({"no process asks the queue in a tight loop"}),
    {"skews_ms": (-300_000,), "rates": Rates(provider=0.8)},
)
