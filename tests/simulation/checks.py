"""What gesta promises (G1 to G5), checked against the truth that only the simulation knows.

A promise is reported by its words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.domain import events as e
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.ids import idempotency_key
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.domain.task import TASK
from gesta.ports.event_store import Recorded
from gesta.ports.job_queue import Job
from gesta.ports.read_model import View
from gesta.projector.batch_fold import CONFIG
from gesta.requests.loader import apply_event
from gesta.stores.separate_queue import PLACEHOLDER_MS
from tests.simulation.provider import CARELESS, SLOTS

evolve = TASK.evolve

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.provider import Call
    from tests.simulation.world import World

Key = tuple[str, str, str]

#: More takes of one process in one second than the few jobs of a run can ask for.
TAKES_MAX = 25
#: From the last look of a worker at a stream to its call, unless a store is slow in between.
AN_INSTANT_SECONDS = 0.1


class Broken(AssertionError):
    """A promise does not hold."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class PromiseChecks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._takes: Counter[tuple[str, int]] = Counter()
        self._dispatched: set[str] = set()
        #: Requests that were cancelled or expired at some time, whatever came after it.
        self._ended_early: set[str] = set()

    # While it runs.

    def at_call(self, call: Call) -> None:
        """A provider is about to be called: by one who may, with what is right, and not too
        early.
        """
        world, attempt = self._world, call.attempt
        state = self._head((attempt.flow, attempt.tenant, attempt.request_id))
        name = world.short(attempt.request_id)
        now_ms, key = (
            int(world.loop.now * 1000),
            idempotency_key(state.tenant, state.id, state.operation, state.intent),
        )
        is_open = (
            (state.wants == "execute" and not state.is_terminal)
            or self._may_have_met(state)
            or self._lost_its_job(state)
            or self._has_just_succeeded_late(state)
        )
        self._holds(
            "nothing is called that is over, unknown or cancelled",
            is_open,
            f"{name} is {state.status}",
        )
        self._holds(
            "every attempt of an intent has the same key",
            attempt.key == key,
            f"{name}: {attempt.key}, not {key}",
        )
        self._holds(
            "attempts are counted from events",
            attempt.number == state.attempts + 1,
            f"{name} #{attempt.number}",
        )
        due = state.due_at is None or state.due_at <= call.process.runtime.now_ms()
        self._holds("nothing is called before it is due", due, f"{name} is due at {state.due_at}")
        # Of a retry or redrive "now" is the time of the caller, and here every process
        # has got the time wrong.
        early = (
            state.attempts == 0
            and state.dispatch_version == 1
            and state.due_at is not None
            and state.due_at > now_ms
        )
        self._holds(
            "no clock but the store's makes a delivery early",
            not early,
            f"{name} is due at {state.due_at}, now {now_ms}",
        )
        self._holds_its_lease(call, state)

    def _holds_its_lease(self, call: Call, state: State) -> None:
        """Only the process that holds the lease calls, one at a time, within the flow's slots."""
        world, name = self._world, self._world.short(state.id)
        now_ms = int(world.loop.now * 1000)
        row = world.queue._rows.get(state.job_id)
        lease = world.queue._leases.get(call.token)
        held = (
            row is not None
            and row.token == call.token
            and lease is not None
            and lease.end_ms > now_ms
        )
        self._holds(
            "the caller holds the lease",
            held or world.queue_was_lost,
            f"{name} by {call.process.name}",
        )
        others = [
            one
            for one in world.provider.calls[state.id]
            if not (one.is_over or one.is_cut or one.process.is_dead)
        ]
        rival = next((one for one in others if one.lease.covers(one.token)), None)
        self._holds(
            "two never call at once",
            rival is None or world.queue_was_lost,
            f"{name} by {call.process.name}",
        )
        beside = [
            one
            for calls in world.provider.calls.values()
            for one in calls
            if one.process is call.process
            and one.attempt.flow == state.flow
            and not (one.is_over or one.is_cut)
        ]
        self._holds(
            "no flow has more calls at once than slots",
            len(beside) < SLOTS,
            f"{name} by {call.process.name}",
        )

    def _lost_its_job(self, state: State) -> bool:
        """Cancelled or expired after the queue was lost: its job is absent, and the worker that had
        it stood still meanwhile (docs/guarantees.md, G3).
        """
        lost = self._world.queue_was_lost and state.status in ("cancelled", "expired")
        self._world.hits["called_after_its_job_was_lost"] += lost
        return lost

    def _has_just_succeeded_late(self, state: State) -> bool:
        """An executor that was cut off, or whose process stood still until its lease was lost, has
        ended well after this worker had read the stream and before its call (docs/guarantees.md,
        G3).
        """
        now = self._world.loop.now
        late = state.status == "completed" and any(
            call.was_in_doubt and call.is_answered and now - call.ended < AN_INSTANT_SECONDS
            for call in self._world.provider.calls[state.id]
        )
        self._world.hits["called_beside_a_late_success"] += late
        return late

    def _may_have_met(self, state: State) -> bool:
        """Cancelled or expired at the very instant of its first lease: what docs/why.md leaves
        open where the queue is apart.
        """
        world = self._world
        if (
            not world.options.separate_queue
            or state.flow == "sim.journalled"
            or state.status not in ("cancelled", "expired")
        ):
            return False
        is_slow = min(world.options.skews_ms) * -1 > PLACEHOLDER_MS - 10_000
        met = is_slow or state.id in world.users.inline or state.expires_at is not None
        world.hits["met_at_the_same_instant"] += met
        return met

    def put(self, jobs: list[Job]) -> None:
        """The sweep puts back what was lost; where queue and log share a database, a job is lost
        with the queue only.
        """
        # Where clocks differ by more than the sweep waits, a question whose time has not come looks
        # like one that was lost: harmless.
        is_early = self._world.options.skew_ms > 0
        lost = [
            job.request_id
            for job in jobs
            if job.possibly_executed and not (is_early and job.kind == "reconcile")
        ]
        if lost:
            world = self._world
            world.hit("jobs_restored_separate" if world.options.separate_queue else "jobs_restored")
            self._holds(
                "no job is lost unless the queue is",
                world.queue_was_lost or world.options.separate_queue,
                f"{len(lost)} jobs",
            )

    def projected(self, jobs: list[Job]) -> None:
        """The projector has dispatched these: each opening of an operation once, however often
        views are folded anew.
        """
        again = [job.request_id for job in jobs if job.id in self._dispatched]
        self._dispatched.update(job.id for job in jobs)
        self._holds(
            "a rebuild dispatches nothing", not again, ", ".join(map(self._world.short, again))
        )

    def opened(self, person: str, text: str) -> None:
        self._holds(
            "a encrypted field is opened as it was given",
            text.endswith(f" to {person}"),
            f"{person}: {text}",
        )

    def erased(self) -> None:
        held = [
            ref for ref in self._world.users.destroyed if self._world.database.vault._boxes[ref].box
        ]
        self._holds("an erased person's keys are gone for ever", not held, f"{len(held)} keys")

    def take(self, process: Process) -> None:
        second = process.name, int(self._world.loop.now)
        self._takes[second] += 1
        self._holds(
            "no process asks the queue in a tight loop",
            self._takes[second] <= TAKES_MAX,
            process.name,
        )

    @property
    def takes_in_a_second(self) -> int:
        return max(self._takes.values(), default=0)

    # At rest.

    def at_rest(self) -> None:
        """Everything has ended, or is visibly unknown; everybody's books agree."""
        world, database = self._world, self._world.database
        open_ones = [
            view.state
            for view in database.read_model._rows.values()
            if view.state.wants is not None
        ]
        detail = ", ".join(f"{world.short(one.id)} {one.status} ({one.flow})" for one in open_ones)
        jobs = len(world.queue._rows) + len(database.read_model._undispatched.first(1))
        self._holds(
            "everything comes to rest", not open_ones and not jobs, f"{detail}; {jobs} jobs"
        )
        self._holds(
            "nothing is quarantined",
            not database.read_model._quarantined,
            f"{list(database.read_model._quarantined.values())}",
        )
        streams: defaultdict[str, list[Recorded]] = defaultdict(list)
        for recorded in world.log:
            if decode_meta(recorded.meta).flow != CONFIG:
                streams[recorded.stream].append(recorded)
        states = {
            state.id: state for stream in streams.values() for state in [self._stream(stream)]
        }
        self._accepted(states)
        self._effects(states)
        self._holds("views are what their events say", self.views() == self._folded(), "")
        self.erased()
        world.hits.update(f"rest_{state.status}" for state in states.values())
        world.hits["rest_subject_erased"] += sum(
            state.reason == "subject_erased" for state in states.values()
        )

    def _accepted(self, states: dict[str, State]) -> None:
        """G1, G2: what was answered exists, and a key leads to one request with one content."""
        database, by_key = (
            self._world.database,
            Counter(
                (state.flow, state.tenant, state.key)
                for state in states.values()
                if state.key is not None
            ),
        )
        twice = [key for key, count in by_key.items() if count > 1]
        self._holds("a key leads to one request", not twice, f"{twice}")
        created = Counter(one.id for one in self._world.users.acked if one.verdict == "created")
        self._holds(
            "a request is created once", not created or max(created.values()) == 1, f"{created}"
        )
        for one in self._world.users.acked:
            view = database.read_model._rows.get((one.flow, one.tenant, one.id))
            name = self._world.short(one.id)
            self._holds("what was accepted exists", view is not None and one.id in states, name)
            if view is not None:
                stored = msgspec.json.decode(view.payload)["text"]
                self._holds(
                    "a key leads to the content it was given with",
                    stored == one.text,
                    f"{name}: {stored}, not {one.text}",
                )
                self._holds("a key leads to its request", view.state.key == one.key, name)

    def _stream(self, stream: list[Recorded]) -> State:
        """Well-formed from its first event to its last, and nothing after a success."""
        state: State | None = None
        name = self._world.short(decode_meta(stream[0].meta).request_id)
        for place, recorded in enumerate(stream, 1):
            event = event_types(decode_meta(recorded.meta).flow).decode(
                recorded.type, recorded.data
            )
            self._holds(
                "versions count the events",
                recorded.version == place,
                f"{name} v{recorded.version}",
            )
            self._holds(
                "a success is final",
                state is None or state.status != "completed",
                f"{name}: {recorded.type} after it",
            )
            late = (
                isinstance(event, e.CompletedLate)
                and state is not None
                and state.status == "cancelled"
            )
            is_fair = (
                not late
                or self._world.queue_was_lost
                or (state is not None and self._may_have_met(state))
            )
            self._holds(
                "nothing is cancelled while it is called", is_fair, f"{name}: {recorded.type}"
            )
            self._world.hit(f"event_{recorded.type.split('.')[-2]}{_kind(event)}")
            before, state = state, evolve(state, event, decode_meta(recorded.meta))
            if state.status in ("cancelled", "expired"):
                self._ended_early.add(state.id)
            if (
                self._world.options.ears
                and state.is_terminal
                and (before is None or before.status != state.status)
            ):
                reported = self._world.ears.heard.get(recorded.position)
                self._holds(
                    "every end is notified",
                    reported == state.status,
                    f"{name}: {reported}, not {state.status}",
                )
        self._holds(
            "positions rise", all(a.position < b.position for a, b in pairwise(stream)), name
        )
        assert state is not None
        return state

    def _effects(self, states: dict[str, State]) -> None:
        """G3, G4: one effect for each intent, and evidence of it is never lost."""
        world, provider = self._world, self._world.provider
        for request_id, calls in [one for one in provider.calls.items() if one[1]]:
            state, name = states[request_id], world.short(request_id)
            effects = {call.attempt.key: provider.effects[call.attempt.key] for call in calls}
            residual, forced = sum(effects.values()) - 1, world.users.forced[request_id]
            if state.flow == CARELESS:
                # A duplicate for each call that had its effect and whose answer or lease was lost,
                # and not one more.
                missing = sum(call.has_effect and call.was_in_doubt for call in calls)
                world.hits["residual"] += max(0, residual)
                self._holds(
                    "a careless flow doubles only what was unknown",
                    residual <= missing + forced,
                    f"{name}: {effects}",
                )
            else:
                allowed = 1 + (request_id in world.lost_unrelayed)
                world.hits["residual_of_a_lost_queue"] += max(effects.values()) > 1
                self._holds(
                    "one effect for each intent",
                    max(effects.values()) <= allowed,
                    f"{name}: {effects}",
                )
                # Absent with the whole queue counts as never held: such a request may expire, and
                # then be redriven as a new intent.
                is_one = residual <= forced + world.queue_was_lost
                self._holds(
                    "one effect for each request, unless a person forced another",
                    is_one,
                    f"{name}: {effects}",
                )
            heard = [call for call in calls if call.is_answered and not call.process.is_dead]
            self._holds(
                "evidence of success is never lost",
                not heard or state.status == "completed",
                f"{name} is {state.status}",
            )
            self._holds(
                "completed means that it happened",
                state.status != "completed" or residual >= 0,
                name,
            )
            if world.queue_was_lost and request_id in self._ended_early:
                # A job that is absent counts as one that no worker held: lost with the queue, that
                # may be wrong. Redriven later, such a request is a new intent, and may fail without
                # a word about the old one.
                world.hits["ended_without_its_job"] += 1
                continue
            is_recorded = (
                state.status == "completed"
                or state.in_doubt
                or sum(effects.values()) == 0
                or forced > 0
            )
            self._holds(
                "what happened is sent, or unknown",
                is_recorded,
                f"{name} is {state.status}: {effects}",
            )

    # Views.

    def views(self) -> dict[Key, View]:
        return dict(self._world.database.read_model._rows)

    def _folded(self) -> dict[Key, View]:
        views: dict[Key, View] = {}
        for recorded in self._world.log:
            meta = decode_meta(recorded.meta)
            if meta.flow == CONFIG:
                continue
            key = (meta.flow, meta.tenant, meta.request_id)
            views[key] = apply_event(views.get(key), recorded, meta.flow)
        return views

    def rebuilt(self, before: dict[Key, View]) -> None:
        """G5: the same views, and no job."""
        database = self._world.database
        self._holds("a rebuild gives the same views", self.views() == before, "")
        at_end = self._world.projected == len(database.events._log) if before else True
        self._holds("a rebuild goes to the end", at_end, f"{database.read_model._checkpoints}")
        self._holds(
            "a rebuild dispatches nothing",
            not self._world.queue._rows and not database.read_model._undispatched.first(1),
            "",
        )

    def nothing_new(self, calls_before: int) -> None:
        self._holds(
            "nothing is sent after a rebuild", len(self._world.trace_of_calls) == calls_before, ""
        )
        self._holds("nothing is recorded after a rebuild", self.views() == self._folded(), "")

    def _head(self, key: Key) -> State:
        state: State | None = None
        types = event_types(key[0])
        for recorded in self._world.database.events._streams[request_stream(*key)]:
            state = evolve(
                state, types.decode(recorded.type, recorded.data), decode_meta(recorded.meta)
            )
        assert state is not None
        return state

    def _holds(self, promise: str, does: bool, detail: str) -> None:
        if not does:
            self._world.breaks(promise, detail)


def _kind(event: Any) -> str:
    """What is worth distinguishing within a type of event."""
    match event:
        case e.Updated():
            return f"_{event.change}"
        case e.OutcomeResolved():
            return f"_{event.result}_by_{'provider' if event.by == 'provider' else 'person'}"
        case e.OutcomeUnknown():
            return (
                f"_{event.reason}"
                if event.reason in ("lease_lost", "timeout", "key_forgotten", "expired_in_doubt")
                else ""
            )
        case _:
            return ""
