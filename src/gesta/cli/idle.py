"""When nothing works on a store, people are told: what they ask for stands on disk and waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gesta.cli.output import tell

if TYPE_CHECKING:
    from gesta.admin.wording import Target
    from gesta.engine.engine import Engine


def start_a_server(place: Target) -> str:
    return f"nothing works on this store right now; start `{place.process('serve')}`"


async def warn_if_idle(engine: Engine, place: Target) -> None:
    if not await engine.admin.is_worked_on():
        tell(start_a_server(place), "yellow")


async def warn_of_lag(engine: Engine, place: Target) -> None:
    """A listing comes from the views: say so when they are behind and will stay so."""
    unseen = await engine.admin.unseen()
    if unseen and not await engine.admin.is_worked_on():
        tell(
            f"newer events that this list does not show yet: {unseen}; {start_a_server(place)}",
            "yellow",
        )
