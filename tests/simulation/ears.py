"""A subscriber: it gets every end at least once, in the order of the log, whatever process dies
meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gesta.domain.status_events import Event
from gesta.domain.stream_names import checkpoint_of
from tests.simulation.loop import OWNER

if TYPE_CHECKING:
    from gesta import Engine
    from tests.simulation.process import Process
    from tests.simulation.world import World

NAME = "ears"
CHECKPOINT = checkpoint_of(NAME)


class Ears:
    def __init__(self, world: World) -> None:
        self._world = world
        #: Position → status, of every notification.
        self.heard: dict[int, str] = {}

    def listen(self, engine: Engine) -> None:
        if self._world.options.ears:
            engine.on("sim.*", name=NAME, since="beginning")(self._hear)

    @property
    def is_behind(self) -> bool:
        database = self._world.database
        return self._world.options.ears and database.read_model._checkpoints.get(
            CHECKPOINT, 0
        ) < len(database.events._log)

    async def _hear(self, event: Event) -> None:
        world, process = self._world, cast("Process", OWNER.get())
        await world.network.pass_through(process)
        if world.chance(world.rates.provider / 4):
            world.hit("handler_raises")
            raise RuntimeError("a bug in the handler")
        world.note(process, f"hears of {world.short(event.request_id)}: {event.status}")
        if event.position in self.heard:
            world.hit("notified_again")
        elif event.position < max(self.heard, default=0):
            world.breaks(
                "notifications come in order",
                f"{world.short(event.request_id)} {event.status} at {event.position}",
            )
        self.heard[event.position] = event.status
        await world.network.pass_through(process)
