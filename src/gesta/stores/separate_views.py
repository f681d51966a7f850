"""Views in another database than the events: what is one transaction elsewhere becomes steps in an
order that a crash may cut.

The durable store keeps the record of what was dispatched: jobs, and with them the projector's
checkpoint. The views keep a position of their own. The durable store is written first. A position
behind the checkpoint means that views are missing: they were not written yet, or their database
lost them. The projector then folds again from the position, and dispatches nothing up to the
checkpoint.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from gesta.domain.state import State
from gesta.ports.checkpoints import Checkpoint, Checkpoints, Move, dispatched_of
from gesta.ports.eager_dispatch import FreeSlots
from gesta.ports.event_store import Append, AppendVerdict
from gesta.ports.job_queue import Job
from gesta.ports.read_model import Quarantined, Shadow, View, key_of
from gesta.ports.stores import Missing, Stores, ViewPorts, required
from gesta.ports.transactions import NO_SECRETS, Entry, Projection, Recording
from gesta.ports.undispatched_jobs import UndispatchedJobs

#: Writes jobs, quarantined events and moves into the durable store.
Put = Callable[[Sequence[Job], Sequence[Quarantined], Sequence[Move]], Awaitable[bool]]


def with_separate_views(stores: Stores, views: ViewPorts) -> Stores:
    """The ports of `stores`, with the views of another database."""
    jobs = required(
        stores.undispatched_jobs,
        Missing(UndispatchedJobs, stores.name, "views in another database need it"),
    )
    writes = _Writes(stores.checkpoints, views)

    return replace(
        stores,
        read_model=SeparateReadModel(stores, views, writes),
        sweep_index=views.sweep_index,
        checkpoints=SeparateCheckpoints(stores.checkpoints, writes),
        undispatched_jobs=SeparateJobs(jobs, writes),
        transactions=SeparateViewTransactions(stores, views, writes),
        close=stores.close_after(views.close),
        projects_inline=False,
        has_separate_views=True,
    )


def _is_projection(name: str) -> bool:
    return name.partition("/")[0] == "projector"


class _Known(NamedTuple):
    """What this process knows of a projection: the checkpoint in the durable store, how far its
    jobs were put beyond that, and the position of its views.
    """

    durable: int
    dispatched: int
    position: int

    @property
    def quiet(self) -> int:
        """Up to here no job is put while the projector folds again."""
        return self.dispatched if self.position >= self.durable else max(self[:2])

    def allows(self, move: Move) -> bool:
        """Whether the move was planned with what is known now. While views are missing, only a
        fold that knows what was dispatched may fill them in.
        """
        if move.dispatched is None:
            return move.before == self.position == self.durable
        return move.before == self.position and move.dispatched == self.quiet


class _Writes:
    """The two steps of a projection."""

    def __init__(self, checkpoints: Checkpoints, views: ViewPorts) -> None:
        self._checkpoints, self._views = checkpoints, views
        self._known: dict[str, _Known] = {}

    async def checkpoints(self) -> list[Checkpoint]:
        """Those of the durable store. The projector's are as far as the views are written, and
        what it has dispatched beyond that counts as dispatched.
        """
        positions = await self._views.positions.positions()
        found = {one.name: one for one in await self._checkpoints.checkpoints()}
        for name in [one for one in found if _is_projection(one) or one in positions]:
            quiet = dispatched_of(name)
            durable = found[name].position
            known = self._known[name] = _Known(
                durable,
                found[quiet].position if quiet in found else 0,
                min(durable, positions.get(name, 0)),
            )
            if known.position < durable:
                found[name] = structs.replace(found[name], position=known.position)
                found[quiet] = Checkpoint(quiet, known.quiet)
        return [found[name] for name in sorted(found)]

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        put: Put,
    ) -> bool:
        """Jobs and checkpoints first, then the views. False: another process moved a checkpoint,
        or the views' database has lost what it had.
        """
        if any(move.name not in self._known for move in moves):
            await self.checkpoints()
        known = {move.name: self._known.get(move.name, _Known(0, 0, 0)) for move in moves}
        if not all(known[move.name].allows(move) for move in moves):
            self.forget()
            return False
        ahead = [
            Move(
                move.name,
                known[move.name].durable,
                move.after,
                None if move.dispatched is None else known[move.name].dispatched,
            )
            for move in moves
            if move.after > known[move.name].durable
        ]
        if (ahead or jobs or quarantined) and not await put(jobs, quarantined, ahead):
            self.forget()
            return False
        if not await self._views.read_model.save(views, (), moves):
            self.forget()
            return False
        for move in moves:
            durable, dispatched, _ = known[move.name]
            self._known[move.name] = _Known(max(durable, move.after), dispatched, move.after)
        return True

    def forget(self) -> None:
        """Read all positions again before the next write."""
        self._known.clear()


class SeparateReadModel:
    """Implements gesta.ports.read_model: views elsewhere, quarantined events in the durable
    store.
    """

    def __init__(self, stores: Stores, views: ViewPorts, writes: _Writes) -> None:
        self._durable, self._views, self._writes = stores.read_model, views.read_model, writes
        self.get, self.find = views.read_model.get, views.read_model.find
        self.counts = views.read_model.counts
        self.undecided = views.read_model.undecided
        self.unsettled = views.read_model.unsettled
        self.quarantined = stores.read_model.quarantined

    async def save(
        self,
        views: Sequence[View],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move] = (),
    ) -> bool:
        async def put(
            _: Sequence[Job], quarantined: Sequence[Quarantined], moves: Sequence[Move]
        ) -> bool:
            return await self._durable.save([], quarantined, moves)

        return await self._writes.project(views, (), quarantined, moves, put)

    async def shadow(self) -> Shadow:
        """The durable store's is empty: its swap turns the checkpoints back and replaces the
        quarantined events.
        """
        return SeparateShadow(
            await self._durable.shadow(), await self._views.shadow(), self._writes
        )


class SeparateShadow:
    """Implements gesta.ports.read_model.Shadow: the swap of the durable store, then the one of the
    views. A crash in between leaves the former views, onto which the projector folds again.
    """

    def __init__(self, durable: Shadow, views: Shadow, writes: _Writes) -> None:
        self._durable, self._views, self._writes = durable, views, writes
        self.get, self.save = views.get, views.save

    async def swap(
        self, names: Sequence[str], position: int, quarantined: Sequence[Quarantined]
    ) -> bool:
        self._writes.forget()
        if not await self._durable.swap(names, position, quarantined):
            return False
        return await self._views.swap(names, position, ())


class SeparateCheckpoints:
    """Implements gesta.ports.checkpoints over the durable store and the positions of the views."""

    def __init__(self, durable: Checkpoints, writes: _Writes) -> None:
        self._durable, self._writes = durable, writes
        self.begin, self.move = durable.begin, durable.move
        self.forget, self.note_error = durable.forget, durable.note_error
        self.checkpoints = writes.checkpoints

    async def position(self, name: str) -> int:
        if not _is_projection(name):
            return await self._durable.position(name)
        found = {one.name: one.position for one in await self.checkpoints()}
        return found.get(name, 0)


class SeparateJobs:
    """Implements gesta.ports.undispatched_jobs."""

    def __init__(self, durable: UndispatchedJobs, writes: _Writes) -> None:
        self._durable, self._writes = durable, writes
        self.undispatched, self.find_undispatched = durable.undispatched, durable.find_undispatched
        self.remove_undispatched = durable.remove_undispatched

    async def save_with_jobs(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
    ) -> bool:
        async def put(
            jobs: Sequence[Job], quarantined: Sequence[Quarantined], moves: Sequence[Move]
        ) -> bool:
            return await self._durable.save_with_jobs([], jobs, quarantined, moves)

        return await self._writes.project(views, jobs, quarantined, moves, put)


class SeparateViewTransactions:
    """Implements gesta.ports.transactions: nothing is projected by the append itself."""

    def __init__(self, stores: Stores, views: ViewPorts, writes: _Writes) -> None:
        self._events, self._durable = stores.events, stores.transactions
        self._own_views, self._views, self._writes = stores.read_model, views, writes

    async def append(
        self, appends: Sequence[Append], projection: Projection
    ) -> list[AppendVerdict]:
        return await self._events.append(appends)

    async def project(
        self,
        views: Sequence[View],
        jobs: Sequence[Job],
        quarantined: Sequence[Quarantined],
        moves: Sequence[Move],
        free_slots: FreeSlots | None = None,
    ) -> bool:
        async def put(
            jobs: Sequence[Job], quarantined: Sequence[Quarantined], moves: Sequence[Move]
        ) -> bool:
            return await self._durable.project([], jobs, quarantined, moves, free_slots)

        return await self._writes.project(views, jobs, quarantined, moves, put)

    async def record(
        self, entries: Sequence[Entry], projection: Projection | None = None
    ) -> list[Recording]:
        return await self._durable.record(entries)

    async def remove(
        self, ended: Sequence[tuple[str, State]], secrets: Mapping[str, str] = NO_SECRETS
    ) -> int:
        """The durable store removes events together with a view of its own: it gets one for the
        purpose. A crash before the last step leaves a view, which the next walk removes.
        """
        seen = await self._views.read_model.get([key_of(state) for _, state in ended])
        same = [
            (stream, state)
            for stream, state in ended
            if (view := seen.get(key_of(state))) is not None and view.state.version == state.version
        ]
        await self._own_views.save([View(state, b"{}") for _, state in same], [])
        count = await self._durable.remove(same, secrets)
        left = await self._own_views.get([key_of(state) for _, state in same])
        await self._views.positions.remove([one for _, one in same if key_of(one) not in left])
        return count
