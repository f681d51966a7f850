"""Removes old requests: events, view and result together, in small commits. Their keys stay
claimed.

Events that a consumer of the log has not read yet stay.
"""

from collections.abc import Mapping
from datetime import timedelta

from gesta.domain.durations import format_duration
from gesta.domain.ids import made_at
from gesta.domain.stream_names import request_stream
from gesta.flows.flow import Flow
from gesta.ports.read_model import ViewPosition
from gesta.ports.stores import Stores
from gesta.projector.rebuild import ROLE as REBUILD
from gesta.requests.dead_letters import failure_of
from gesta.runtime.component import Process
from gesta.tenants.flow_records import RESULT, Records

#: Requests looked at per step, each step one commit.
BATCH = 500
#: The pause between two walks through the old requests. Open requests are checked once in each
#: walk.
PAUSE_SECONDS = 3600.0
_START: ViewPosition = ("", "", "")


class Retention:
    def __init__(
        self,
        keep: timedelta | None,
        *,
        flows: Mapping[str, Flow],
        stores: Stores,
        records: Records,
        process: Process,
    ) -> None:
        self._keep_ms = None if keep is None else _milliseconds(keep)
        self._flows, self._requests, self._leases = flows, stores.sweep_index, stores.leases
        self._transactions, self._records = stores.transactions, records
        self._runtime, self._telemetry = process.runtime, process.telemetry
        #: Flows whose request ids do not show their age.
        self._foreign = frozenset(
            name for name, flow in flows.items() if flow.request_id is not None
        )
        self._place = _START
        self._rests_until = float("-inf")

    async def step(self) -> None:
        """Remove the next old requests."""
        if self._keep_ms is None or self._runtime.monotonic() < self._rests_until:
            return
        now = self._runtime.now_ms()
        if any(role.name == REBUILD and role.is_held(now) for role in await self._leases.roles()):
            # A rebuild would have to start again.
            return
        ended, place = await self._requests.old(
            now - self._keep_ms, self._place, BATCH, self._foreign
        )
        leaving = [
            (request_stream(state.flow, state.tenant, state.id), state)
            for state in ended
            # A dead letter stays as long as it is listed.
            if failure_of(state, self._flows.get(state.flow), now) is None
        ]
        if leaving:
            secrets = {
                stream: self._records.vault_name(state.tenant, RESULT, state.id)
                for stream, state in leaving
            }
            self._telemetry.removed(await self._transactions.remove(leaving, secrets))
        if place is None:
            self._rests_until = self._runtime.monotonic() + PAUSE_SECONDS
        self._place = place or _START


def removed_text(request_id: str, keep: timedelta | None, now_ms: int) -> str:
    """What to add to "not found" when retention may be the reason."""
    made_ms = made_at(request_id)
    if keep is None or made_ms is None or made_ms >= now_ms - _milliseconds(keep):
        return ""
    return (
        f"; it was created more than {format_duration(keep)} ago, and retention ="
        f" {format_duration(keep)} removes ended requests of that age"
    )


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
