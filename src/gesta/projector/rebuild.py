"""Rebuilds the views from the events in a shadow, then swaps them in.

Everything else continues meanwhile; nothing is sent again.
"""

from collections.abc import Callable

from gesta.errors import GestaError
from gesta.ports.leases import Role
from gesta.ports.read_model import Quarantined
from gesta.ports.stores import Stores
from gesta.projector.batch_fold import Folding
from gesta.projector.partitions import begin_checkpoints, checkpoints_of, projected_position
from gesta.projector.projector import BATCH, Projector
from gesta.runtime.component import Process

ROLE = "rebuild"
#: Under load the log grows meanwhile. A rebuild follows it in so many rounds; the projector folds
#: the rest.
ROUNDS = 10

RUNS = (
    "the views of this store are already being rebuilt; nothing was changed. Wait for that rebuild"
    " to end"
)

Progress = Callable[[int, int], None]


class Rebuild:
    def __init__(self, stores: Stores, process: Process) -> None:
        self._events, self._views, self._count = stores.events, stores.read_model, stores.partitions
        self._checkpoints, self._leases = stores.checkpoints, stores.leases
        self._process = process
        self._is_running = False
        # A separate one: the projector of this process may run at another position.
        self._projector = Projector(stores, process)

    async def run(self, progress: Progress) -> int:
        """Rebuild; returns how many events were folded.

        Raises GestaError, and nothing has changed, if another rebuild runs.
        """
        if self._is_running:
            # The lease excludes other processes only.
            raise GestaError(RUNS)
        self._is_running = True
        try:
            role = Role(
                ROLE,
                owner=self._process.owner,
                leases=self._leases,
                runtime=self._process.runtime,
            )
            await _hold(role)
            try:
                return await self._build(role, progress)
            finally:
                await self._leases.claim(ROLE, self._process.owner, 0.0)
        finally:
            self._is_running = False

    async def _build(self, role: Role, progress: Progress) -> int:
        # They may have been lost together with the views.
        await begin_checkpoints(self._events, self._checkpoints, self._count)
        shadow = await self._views.shadow()
        folding = Folding(self._events, shadow.get, self._process)
        quarantined: list[Quarantined] = []
        position = folded = 0
        for _ in range(ROUNDS):
            target = await projected_position(self._checkpoints, self._count)
            # The last event is left out, so that every checkpoint moves back and a commit of a
            # projector that folded onto the old views is refused.
            while batch := [
                one for one in await self._events.follow(position, BATCH) if one.position < target
            ]:
                await _hold(role)
                views, _, poison, _ = await folding.fold(batch, quiet_until=target)
                await shadow.save(views)
                quarantined += poison
                position, folded = batch[-1].position, folded + len(batch)
                progress(position, target)
            if await projected_position(self._checkpoints, self._count) - position < BATCH:
                break
        await _hold(role)
        if not await shadow.swap(checkpoints_of(self._count), position, quarantined):
            raise GestaError(
                "another rebuild was faster, or old requests were removed meanwhile; nothing was"
                " changed. Run it again"
            )
        return folded + await self._projector.catch_up()


async def _hold(role: Role) -> None:
    if not await role.is_ours():
        raise GestaError(RUNS)
