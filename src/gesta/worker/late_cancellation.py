"""Requests that were cancelled while their jobs were on the way back or into a hold: no attempt of
them ends, so none would hear of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from gesta.domain.commands import Cancel, CommandRefused
from gesta.flows.flow import Flow
from gesta.ports.read_model import Key
from gesta.requests.loader import Loader
from gesta.requests.recorder import Recorder, drop_job


class LateCancellation:
    def __init__(self, flows: Mapping[str, Flow], loader: Loader, recorder: Recorder) -> None:
        self._flows, self._loader, self._recorder = flows, loader, recorder

    async def look(self, keys: Sequence[Key]) -> None:
        """After their jobs were settled: whoever cancels later finds the jobs free, so one of the
        two always ends it.
        """
        found, _ = await self._loader.load(keys)
        for view in found.values():
            state = view.state
            if state.cancel_requested and state.wants == "execute" and not state.in_doubt:
                with suppress(CommandRefused):
                    # Whoever was faster has ended it, or put it in doubt.
                    await self._recorder.apply(
                        view,
                        Cancel(),
                        self._flows[state.flow].rules,
                        drop_job,
                        causation_id=state.id,
                    )
