"""Events in a list. The position of an event is its index plus one."""

import heapq
import itertools
from collections.abc import Sequence

from gesta.ports.event_store import (
    Append,
    Appended,
    AppendVerdict,
    Claim,
    Claimed,
    LeadsElsewhere,
    Recorded,
    Share,
    Stale,
    until_full,
)
from gesta.runtime.clock import Runtime, Signal
from gesta.stores.memory.fences import MemoryFences


class MemoryEventStore:
    def __init__(self, runtime: Runtime, fences: MemoryFences | None = None) -> None:
        self.fences = fences or MemoryFences()
        #: None: removed.
        self._log: list[Recorded | None] = []
        self._streams: dict[str, list[Recorded]] = {}
        self._claims: dict[bytes, Claim] = {}
        self._appended = Signal(runtime)

    @property
    def length(self) -> int:
        return len(self._log)

    async def append(self, appends: Sequence[Append]) -> list[AppendVerdict]:
        self.fences.check_appends(appends)
        return [self.append_one(append) for append in appends]

    async def claims(self, after: bytes, limit: int) -> list[Claim]:
        return [
            self._claims[name]
            for name in heapq.nsmallest(limit, (name for name in self._claims if name > after))
        ]

    async def put_claims(self, claims: Sequence[Claim]) -> list[bool]:
        self.fences.check()
        return [self._leads_to_its_own(claim) for claim in claims]

    def _leads_to_its_own(self, claim: Claim) -> bool:
        return self._claims.setdefault(claim.name, claim).request_id == claim.request_id

    async def read(self, streams: Sequence[tuple[str, int]]) -> list[Recorded]:
        return [
            event for stream, after in streams for event in self._streams.get(stream, [])[after:]
        ]

    async def read_back(self, stream: str, before: int | None, limit: int) -> list[Recorded]:
        events = self._streams.get(stream, [])
        end = len(events) if before is None else max(0, min(len(events), before - 1))
        return events[max(0, end - limit) : end][::-1]

    async def follow(self, after: int, limit: int) -> list[Recorded]:
        there = (event for event in itertools.islice(self._log, after, None) if event is not None)
        return until_full(itertools.islice(there, limit))

    async def follow_share(
        self, after: int, limit: int, share: Share
    ) -> tuple[list[Recorded], int]:
        return share.part_of(await self.follow(after, limit), after)

    async def end(self) -> int:
        return len(self._log)

    async def behind(self, after: int) -> int:
        return max(0, len(self._log) - after)

    async def changed(self, timeout_seconds: float) -> None:
        await self._appended.wait(timeout_seconds)

    def remove(self, stream: str, version: int, passed: int) -> bool:
        """Remove a stream of this version whose events are not after `passed`; whether it was."""
        events = self._streams.get(stream, [])
        if len(events) != version or not events or events[-1].position > passed:
            return False
        for event in self._streams.pop(stream):
            self._log[event.position - 1] = None
        return True

    def append_one(self, append: Append) -> AppendVerdict:
        """Decide and write in one step, so that the next append of a batch sees this one."""
        if append.first is not None and not self._leads_to_its_own(append.first):
            return LeadsElsewhere()
        refusal = self._refusal(append)
        if refusal is not None:
            return refusal
        if not self._is_repeated(append):
            self._write(append)
        return Appended(append.expected + len(append.events))

    def _refusal(self, append: Append) -> Stale | Claimed | None:
        is_repeated = self._is_repeated(append)
        holder = None if append.claim is None else self._claims.get(append.claim.name)
        if (
            append.claim is not None
            and holder is not None
            and not (is_repeated and holder.request_id == append.claim.request_id)
        ):
            return Claimed(holder.request_id, holder.content)
        version = len(self._streams.get(append.stream, ()))
        return None if is_repeated or version == append.expected else Stale(version)

    def _is_repeated(self, append: Append) -> bool:
        """Whether an earlier append wrote these events, and its answer was lost."""
        there = self._streams.get(append.stream, [])[
            append.expected : append.expected + len(append.events)
        ]
        return bool(there) and [event.id for event in there] == [
            event.id for event in append.events
        ]

    def _write(self, append: Append) -> None:
        stream = self._streams.setdefault(append.stream, [])
        for event in append.events:
            recorded = Recorded(
                len(self._log) + 1,
                append.stream,
                len(stream) + 1,
                event.id,
                event.type,
                event.data,
                event.meta,
            )
            stream.append(recorded)
            self._log.append(recorded)
        if append.claim is not None:
            self._claims[append.claim.name] = append.claim
        self._appended.set()
