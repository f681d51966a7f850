"""Drains the outbox: requests of callers' own transactions are appended to the log, each once.

Errors that can no longer be raised to the caller end the request: a duplicate is cancelled, a
conflict or an invalid request becomes a dead letter. Nothing of it is sent.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from gesta.domain.commands import Withdraw
from gesta.errors import StoreError
from gesta.flows.flow import Flow
from gesta.intake.first_event import ends_of, with_end
from gesta.intake.submit import Intake, Invalid
from gesta.ports.event_store import Append, Appended, AppendVerdict, Claimed
from gesta.ports.outbox import Outbox, Prepared, Raw
from gesta.runtime.clock import sleep
from gesta.runtime.component import Process, repeat
from gesta.runtime.redaction import scrub

#: Payloads are held in memory, so that a batch is not larger than it has to be.
BATCH = 200
#: A look at an empty outbox is one probe of its index. A caller does not notify: its commit would
#: wait for all others that do.
POLL_SECONDS = 0.1
#: A process that is not the leader looks this often for rows that the leader has left: it may not
#: declare their flow.
STAND_BY_SECONDS = 1.0
LEFT_MS = 2_000
#: How often to look for rows of flows that this process does not declare.
LOOK_SECONDS = 10.0


class OutboxDrain:
    def __init__(
        self,
        *,
        outbox: Outbox,
        intake: Intake,
        flows: Mapping[str, Flow],
        is_leader: Callable[[], Awaitable[bool]],
        process: Process,
    ) -> None:
        """One process, the leader, drains. That saves reads: a second one does no harm."""
        self._outbox, self._intake, self._flows, self._is_leader = outbox, intake, flows, is_leader
        self._process, self._runtime = process, process.runtime
        self._telemetry = process.telemetry
        #: Rows that this code cannot prepare, because of a bug. They stay in the outbox; the others
        #: are drained.
        self._broken: list[str] = []
        self._undeclared: set[str] = set()
        self._look_at = float("-inf")

    async def run(self) -> None:
        """Drain the outbox forever."""
        await repeat(self._turn, "outbox", self._process)

    async def _turn(self) -> None:
        is_leader = await self._is_leader()
        await self._log_undeclared()
        if await self.step(0 if is_leader else LEFT_MS) < BATCH:
            await sleep(self._runtime, POLL_SECONDS if is_leader else STAND_BY_SECONDS)

    async def step(self, age_ms: int = 0) -> int:
        """Drain one batch; returns how many rows it had."""
        rows = await self._outbox.waiting(list(self._flows), age_ms, self._broken, BATCH)
        appends = await self._prepared(rows) if rows else {}
        if appends:
            await self._end(appends, await self._drain(appends))
        return len(rows)

    async def _prepared(self, rows: Sequence[Prepared | Raw]) -> dict[str, Append]:
        """Request id → what to append for it."""
        raw = [row for row in rows if isinstance(row, Raw)]
        made: dict[str, Append | Invalid] = {}
        try:
            made = {
                row.request_id: one
                for row, one in zip(raw, await self._intake.prepare(raw), strict=True)
            }
        except Exception:  # noqa: BLE001 -- whatever is wrong with one row, the rest must go on
            for one_row in raw:
                await self._prepare_alone(one_row, made)
        appends: dict[str, Append] = {}
        for row in rows:
            one = row.append if isinstance(row, Prepared) else made.get(row.request_id)
            if isinstance(one, Invalid):
                text = "; ".join(f"{name}: {error}" for name, error in one.errors.items())
                appends[row.request_id] = self._withdrawn(
                    one.append, Withdraw("invalid_request", scrub(text))
                )
            elif one is not None:
                appends[row.request_id] = one
        return appends

    async def _prepare_alone(self, row: Raw, made: dict[str, Append | Invalid]) -> None:
        try:
            (made[row.request_id],) = await self._intake.prepare([row])
        except StoreError:
            # The row is not the cause: it is read again.
            raise
        except Exception as error:  # noqa: BLE001 -- see above
            self._broken.append(row.request_id)
            self._telemetry.not_drained(row.request_id, row.flow, error)

    async def _end(
        self, appends: Mapping[str, Append], verdicts: Sequence[AppendVerdict | None]
    ) -> None:
        """End requests whose key belongs to an earlier one. A crash before this leaves the rows."""
        ended: dict[str, Append] = {}
        for (request_id, append), verdict in zip(appends.items(), verdicts, strict=True):
            if isinstance(verdict, Claimed):
                assert append.claim is not None
                if verdict.content == append.claim.content:
                    command = Withdraw(
                        "duplicate",
                        f"request {verdict.request_id} has the same key and content",
                    )
                else:
                    command = Withdraw(
                        "conflict",
                        f"the key was used before for request {verdict.request_id} with other"
                        " content",
                    )
                ended[request_id] = self._withdrawn(append, command)
        if ended:
            await self._drain(ended)

    async def _drain(self, appends: Mapping[str, Append]) -> list[AppendVerdict | None]:
        verdicts = await self._outbox.drain(list(appends.items()))
        for append, verdict in zip(appends.values(), verdicts, strict=True):
            if len(append.events) > 1 and isinstance(verdict, Appended):
                self._telemetry.status_changed(*ends_of(append), None)
        return verdicts

    def _withdrawn(self, append: Append, command: Withdraw) -> Append:
        """The same request with its end in the same append. It claims no key."""
        return replace(with_end(append, command, self._runtime.now_ms()), claim=None)

    async def _log_undeclared(self) -> None:
        """Log once for each flow that has rows here and that this process does not declare."""
        if self._runtime.monotonic() < self._look_at:
            return
        self._look_at = self._runtime.monotonic() + LOOK_SECONDS
        now = self._runtime.now_ms()
        for one in await self._outbox.standing():
            is_left = one.is_raw and one.flow not in self._flows and now - one.oldest_ms >= LEFT_MS
            if is_left and one.flow not in self._undeclared:
                self._undeclared.add(one.flow)
                self._telemetry.log.warning(
                    "requests of a flow that this process does not declare wait in the outbox",
                    namespace=one.flow,
                    count=one.count,
                )
