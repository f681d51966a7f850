"""Applies commands to requests: decide, append the events, settle the job in the same commit.

Worker, sweeper and engine call it. It appends at the version that was read, through one group
commit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Protocol

import msgspec

from gesta.domain import events as e
from gesta.domain.codec import encode, event_types
from gesta.domain.commands import Command, HoldRequest, Rules
from gesta.domain.ids import event_id
from gesta.domain.lifecycle import Lifecycle
from gesta.domain.lifecycles import lifecycle_of
from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.errors import Busy, Fenced, StoreError
from gesta.ports.event_store import Append, Appended, AppendVerdict, Known, NewEvent, Stale
from gesta.ports.job_queue import Drop, Settled, Settlement
from gesta.ports.read_model import View
from gesta.ports.transactions import Entry, Recording
from gesta.requests.dispatch import job_for
from gesta.requests.loader import Loader
from gesta.requests.store_retry import StoreRetry
from gesta.runtime.clock import run_all, sleep
from gesta.runtime.component import Process
from gesta.runtime.group_commit import GroupCommit

#: How often a command is decided again because the stream changed.
TRIES = 5

#: (state before, state after) → what becomes of the job.
Settle = Callable[[State, State], Settlement | None]


class RequestLog(Protocol):
    """Where requests are written: the store, or the store with the projection in one commit."""

    #: How many callers' writes go into one commit at most.
    commit_size: int
    #: How many calls of `record` may be under way.
    recordings_at_once: int

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        """As EventStore.append, of new requests."""

    async def record(self, entries: Sequence[Entry]) -> list[Recording]:
        """As Transactions.record."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The view after the command, its events (none: nothing changed), and what the job became."""

    view: View
    events: Sequence[e.Event]
    settled: Settled | None


class Given(msgspec.Struct, frozen=True, gc=False):
    """A command for a request, and the id of what caused it."""

    view: View
    command: Command
    rules: Rules
    causation_id: str


class Origin(msgspec.Struct, frozen=True):
    """Who gave a command, and the ids of its events."""

    actor: e.Actor | None = None
    #: 16 bytes with which the ids of its events begin; the same ones for what may be recorded only
    #: once. None: random ones.
    cause: bytes | None = None
    #: A correlation id other than the request's own.
    correlation_id: str | None = None


ENGINE = Origin()


class Recorder:
    def __init__(
        self, log: RequestLog, *, loader: Loader, store_retry: StoreRetry, process: Process
    ) -> None:
        self._loader, self._store_retry = loader, store_retry
        self._runtime, self._telemetry = process.runtime, process.telemetry
        self._commit: GroupCommit[Entry, Recording] = GroupCommit(
            log.record, "gesta-recorder", log.commit_size, at_once=log.recordings_at_once
        )

    async def apply(
        self,
        view: View,
        command: Command,
        rules: Rules,
        settle: Settle,
        *,
        causation_id: str,
        origin: Origin = ENGINE,
        insist: bool = False,
        tags: Callable[[], Mapping[str, str]] | None = None,
    ) -> Applied:
        """Decide and record; repeat from a fresh read if the stream has changed.

        `insist`: never give up because the store is unavailable or full, because a known outcome
        must not be lost. `tags`: what a log line about the change carries.
        """
        cause = origin.cause or self._runtime.random_bytes(16)
        lifecycle = lifecycle_of(view.state.flow)
        for tries in count(1):
            events = lifecycle.decide(view.state, command, rules)
            after, append = self._append(view.state, events, cause, causation_id, origin, lifecycle)
            settlement, dropped = settle(view.state, after), None
            if isinstance(settlement, Drop):
                if append is None:
                    # Nothing is recorded, so the job stays.
                    settlement = None
                elif view.state.wants is not None:
                    dropped = job_for(view.state, possibly_executed=view.state.started is not None)
            changed = View(after, view.payload)
            entry = Entry(append, settlement, dropped, changed)
            try:
                recording = await self._commit.add(entry)
            except StoreError as error:
                if not insist:
                    raise
                raise_if_gone = partial(_raise_if_gone, command)
                raise_if_gone(error)
                recording = await self._again(entry, raise_if_gone)
            if (
                append is None
                or isinstance(recording.verdict, Appended)
                or recording.settled == "active"
            ):
                if recording.settled == "active":
                    changed = view
                else:
                    self._report(view.state, after, events, lifecycle, tags)
                return Applied(changed, events, recording.settled)
            assert isinstance(recording.verdict, Stale)
            if tries >= TRIES and not insist:
                break
            view = await self.fresh(view, insist=insist)
            if tries > 1:
                # Several commands compete: they spread out, so that fewer of them end as Busy.
                await sleep(self._runtime, self._runtime.chance() * 0.02)
        raise Busy(view.state.id, TRIES)

    def _report(
        self,
        before: State,
        after: State,
        events: Sequence[e.Event],
        lifecycle: Lifecycle,
        tags: Callable[[], Mapping[str, str]] | None,
    ) -> None:
        """Log lines and metrics of a change that is on record."""
        if (
            after.phase == "unknown"
            or after.held != before.held
            or (after.phase == "ended" and after.status not in lifecycle.success)
        ):
            self._telemetry.status_changed(before, after, tags)
        if lifecycle.counters:
            for event in events:
                if (counter := lifecycle.counters.get(type(event))) is not None:
                    self._telemetry.moved(before.flow, counter)

    async def apply_all(self, given: Iterable[Given]) -> list[View | None]:
        """Decide and record the commands of several requests in one write; their jobs stay. The
        store is asked again until it answers.

        Returns the views after them. None: nothing follows from the command, the stream has
        changed, or the tenant was copied to another store. `apply` decides again.
        """
        changed: list[View | None] = []
        entries: list[Entry] = []
        # Of each entry: its number, the state before it, and its events.
        numbers: list[int] = []
        before: list[State] = []
        decided: list[Sequence[e.Event]] = []
        for number, one in enumerate(given):
            changed.append(None)
            state = one.view.state
            lifecycle = lifecycle_of(state.flow)
            events = lifecycle.decide(state, one.command, one.rules)
            cause = self._runtime.random_bytes(16)
            after, append = self._append(state, events, cause, one.causation_id, ENGINE, lifecycle)
            if append is not None:
                entries.append(Entry(append, None, None, View(after, one.view.payload)))
                numbers.append(number)
                before.append(state)
                decided.append(events)
        recordings = await self._record_all(entries)
        for number, state, made, entry, recording in zip(
            numbers, before, decided, entries, recordings, strict=True
        ):
            if recording is not None and isinstance(recording.verdict, Appended):
                assert entry.view is not None
                self._report(state, entry.view.state, made, lifecycle_of(state.flow), None)
                changed[number] = entry.view
        return changed

    async def _record_all(self, entries: Sequence[Entry]) -> Sequence[Recording | None]:
        if not entries:
            return ()
        try:
            return await self._commit.add_all(entries)
        except StoreError:
            # Some may have been written: the store recognises them.
            again = [self._unless_left(entry) for entry in entries]
            return await run_all(again, "gesta-recorder")

    async def _unless_left(self, entry: Entry) -> Recording | None:
        """As `_again`; None if the tenant was copied to another store. The other tenants of a batch
        must not wait until that is undone.
        """
        try:
            return await self._again(entry, _raise_if_left)
        except Fenced:
            return None

    async def settle(
        self, settlement: Settlement | None, *, insist: bool = False
    ) -> Settled | None:
        """Settle a job whose request does not change."""
        if settlement is None:
            return None
        entry = Entry(None, settlement)
        try:
            return (await self._commit.add(entry)).settled
        except StoreError:
            if not insist:
                raise
            return (await self._again(entry, lambda _: None)).settled

    async def states(self, tenant: str, names: Sequence[tuple[str, str]]) -> list[State]:
        """Requests of a tenant by flow and id, as they are now; those that exist."""
        keys = [(flow, tenant, request_id) for flow, request_id in names]
        found, _ = await self._loader.load(keys)
        return [found[key].state for key in dict.fromkeys(keys) if key in found]

    async def fresh(self, view: View, *, insist: bool = False) -> View:
        """The request as it is now."""
        read = partial(self._loader.one, (view.state.flow, view.state.tenant, view.state.id))
        fresh = await (self._store_retry.insist(read) if insist else read())
        return view if fresh is None else fresh

    async def _again(self, entry: Entry, failed: Callable[[StoreError], None]) -> Recording:
        # The same events with the same ids: the store recognises them if it has written them.
        settlements = () if entry.settlement is None else (entry.settlement,)
        return await self._store_retry.again(lambda: self._commit.add(entry), settlements, failed)

    def _append(
        self,
        state: State,
        events: Sequence[e.Event],
        cause: bytes,
        causation_id: str,
        origin: Origin,
        lifecycle: Lifecycle,
    ) -> tuple[State, Append | None]:
        if not events:
            return state, None
        meta = e.Meta(
            state.tenant,
            state.flow,
            state.id,
            self._runtime.now_ms(),
            origin.correlation_id or state.correlation_id or state.id,
            causation_id,
            state.source,
            origin.actor,
        )
        stored_meta, name_of = encode(meta), event_types(state.flow).name_of
        expected, after, new = state.version, state, []
        for ordinal, event in enumerate(events):
            after = lifecycle.evolve(after, event, meta)
            new.append(
                NewEvent(
                    event_id(cause, ordinal),
                    name_of[type(event)],
                    encode(event),
                    stored_meta,
                    Known(event, meta, after),
                )
            )
        return after, Append(
            request_stream(state.flow, state.tenant, state.id), expected, tuple(new)
        )


def _raise_if_gone(command: Command, error: StoreError) -> None:
    """Raise if a repetition cannot help: a job is to be held, but its tenant was copied to another
    store.
    """
    if isinstance(command, HoldRequest):
        _raise_if_left(error)


def _raise_if_left(error: StoreError) -> None:
    """Raise if the tenant was copied to another store."""
    if isinstance(error, Fenced) and error.tenant is not None:
        raise error


def drop_job(before: State, _: State) -> Settlement:
    """Drop the request's job; while a worker holds it, nothing is recorded."""
    return Drop(before.job_id)


def no_job(_: State, __: State) -> None:
    """The request has no job, or the job stays."""
