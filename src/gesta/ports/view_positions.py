"""Port: the positions of projections that are stored beside the views, in another database than
the events (stores/separate_views.py).
"""

from collections.abc import Sequence
from typing import Protocol

from gesta.domain.state import State


class ViewPositions(Protocol):
    async def positions(self) -> dict[str, int]:
        """Checkpoint → the position up to which its views are written. Never ahead of the views,
        whatever the database has lost.
        """

    async def remove(self, states: Sequence[State]) -> None:
        """Remove the views of these requests, unless they have changed since."""
