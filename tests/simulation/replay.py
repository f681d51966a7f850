"""What a failing seed shows: its options, and the trace as people read it."""

from __future__ import annotations

from tests.simulation.checks import Broken
from tests.simulation.options import Options, options
from tests.simulation.world import World

LINES = 40
#: Housekeeping, left out of the short trace.
QUIET = (
    "leases.claim",
    "leases.share",
    "sweep_index.due",
    "queue.take",
    "queue.extend",
    "events.follow",
    "events.follow_share",
    "read_model.get",
    "events.read",
    "checkpoints.checkpoints",
)


class Failed(AssertionError):
    """A seed breaks a promise."""


def simulate(seed: int, chosen: Options | None = None) -> World:
    """Run a seed; raises Failed with everything one needs to replay it."""
    world = World(chosen or options(seed))
    try:
        world.run()
    except Broken as broken:
        lines = [
            f"seed {seed}: {broken}",
            f"replay it with: make simulate SEED={seed}",
            *trace_lines(world, LINES),
        ]
        raise Failed("\n".join(lines)) from None
    return world


def trace_lines(world: World, limit: int | None) -> list[str]:
    """The options and the trace, the last lines of it if limited."""
    trace = (
        world.trace
        if limit is None
        else [one for one in world.trace if one[2] not in QUIET][-limit:]
    )
    return [f"{world.options}", *(f"{at:>10.3f}  {who:<12}  {what}" for at, who, what in trace)]
