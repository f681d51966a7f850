"""When nothing works on a store, people are told: what they ask for stands on disk and waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gesta.cli.output import tell

if TYPE_CHECKING:
    from gesta.engine import Engine

START_A_SERVER = "nothing works on this store right now; start `gesta serve`"


async def warn_if_idle(engine: Engine) -> None:
    if not await engine.operating.is_worked_on():
        tell(START_A_SERVER, "yellow")


async def warn_of_lag(engine: Engine) -> None:
    """A listing comes from the views: say so when they are behind and will stay so."""
    unseen = await engine.operating.unseen()
    if unseen and not await engine.operating.is_worked_on():
        tell(f"newer events that this list does not show yet: {unseen}; {START_A_SERVER}", "yellow")
