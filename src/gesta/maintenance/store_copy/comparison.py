"""Compares two stores by counts and hashes, and names the first stream that differs."""

import hashlib
from collections.abc import Awaitable, Callable

from gesta.domain.state import State
from gesta.domain.stream_names import request_stream
from gesta.errors import StoreError
from gesta.maintenance.store_copy.plan import PAGE, CopyPlan, Home, meta_of, ref_of
from gesta.maintenance.store_copy.transfer import STORED_JOBS
from gesta.ports.event_store import Recorded
from gesta.projector.batch_fold import CONFIG
from gesta.requests.loader import Loader

#: Called with the number of events that were compared since the last call.
Looked = Callable[[int], Awaitable[None]]
#: Whole streams with their payloads, so no more than these are in memory at a time.
STREAMS_AT_ONCE = 100
_MODULUS = 1 << 256


class Tally:
    """A count and a hash that does not depend on the order: a sum of digests, because equal pairs
    would cancel out in an exclusive or.
    """

    def __init__(self) -> None:
        self.count = self.total = 0

    def add(self, *fields: bytes) -> None:
        digest = hashlib.sha256()
        for field in fields:
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
        self.count += 1
        self.total = (self.total + int.from_bytes(digest.digest(), "big")) % _MODULUS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.count, self.total) == (other.count, other.total)

    __hash__ = None  # type: ignore[assignment]


class Comparison:
    def __init__(self, plan: CopyPlan, looked: Looked) -> None:
        self._source, self._target = plan.source, plan.target
        self._plan, self._looked = plan, looked
        #: Requests of other tenants than the one that is copied.
        self.others: frozenset[str] = frozenset()

    async def read_source(self) -> Tally:
        """The events of the source that are copied; on the way, `others` is learned."""
        others: set[str] = set()
        ours: set[str] = set()
        tally = await self._events(self._source, ours, others)
        # If a request of this tenant has the same id, the claim may belong to it, so the claim is
        # copied.
        self.others = frozenset(others - ours)
        return tally

    async def check_events(self, expected: Tally) -> None:
        """Raise StoreError naming the first stream that differs.

        Requests that retention has removed from the source are removed from the target, too.
        """
        if expected == await self._events(self._target, set(), set()):
            return
        await self._compare_streams()
        if expected != await self._events(self._target, set(), set()):
            raise StoreError(
                f"{self._target.url} differs from {self._source.url}; it stays paused. Choose"
                " another target"
            )

    async def check_claims(self) -> None:
        if self._plan.tenant is None and await self._claims(self._source) != await self._claims(
            self._target
        ):
            raise StoreError(
                f"{self._target.url} does not have the keys that {self._source.url} has; it stays"
                " paused"
            )

    async def check_secrets(self) -> None:
        if await self._secrets(self._source) != await self._secrets(self._target):
            raise StoreError(
                f"{self._target.url} does not have the secrets that {self._source.url} has; it"
                " stays paused"
            )

    async def check_stored_jobs(self) -> None:
        """The target may have more: services that use it already may create jobs."""
        ids: set[str] = set()
        expected = await self._stored_jobs(self._source, ids.add, lambda _: True)
        if expected != await self._stored_jobs(self._target, bool, ids.__contains__):
            raise StoreError(
                f"{self._target.url} does not have the jobs of slow endpoints that"
                f" {self._source.url} has; it stays paused"
            )

    async def _stored_jobs(
        self, home: Home, note: Callable[[str], object], is_copied: Callable[[str], bool]
    ) -> Tally:
        tally, after, jobs = Tally(), 0, home.stores.job_rows
        while jobs is not None and (page := await jobs.rows(after, STORED_JOBS)):
            after = page[-1][0]
            for _, row in page:
                note(row[0])
                if is_copied(row[0]):
                    tally.add(repr(tuple(row)).encode())
            await self._looked(0)
        return tally

    async def _events(self, home: Home, ours: set[str], others: set[str]) -> Tally:
        """The events that are copied; on the way, the ids of requests whose tenant is copied and of
        all others, where only one is copied.
        """
        tally, after = Tally(), 0
        while page := await home.stores.events.follow(after, PAGE):
            after = page[-1].position
            for one in page:
                is_copied = self._plan.has_event(one)
                if is_copied:
                    tally.add(
                        one.stream.encode(),
                        b"%d" % one.version,
                        one.id,
                        one.type.encode(),
                        one.data,
                        one.meta,
                    )
                if (
                    self._plan.tenant is not None
                    and (meta := meta_of(one)) is not None
                    and meta.flow != CONFIG
                ):
                    (ours if is_copied else others).add(meta.request_id)
            await self._looked(len(page))
        return tally

    async def _claims(self, home: Home) -> Tally:
        tally, after = Tally(), b""
        while page := await home.stores.key_claims.claims(after, PAGE):
            after = page[-1].name
            for claim in page:
                tally.add(claim.name, claim.request_id.encode(), claim.content)
            await self._looked(0)
        return tally

    async def _secrets(self, home: Home) -> Tally:
        tally, after = Tally(), ("", "", 0)
        while page := await home.stores.vault.listed(after, PAGE):
            after = ref_of(page[-1])
            for one in filter(self._plan.has_secret, page):
                tally.add(one.tenant.encode(), one.name.encode(), b"%d" % one.version, one.box)
        return tally

    async def _compare_streams(self) -> None:
        """Stream by stream, in the order of the source; then those that the source does not have
        any more.
        """
        await self._walk(self._source, self._target, self._check_stream)
        await self._walk(self._target, self._source, self._remove_stream)

    async def _walk(
        self,
        one: Home,
        other: Home,
        differs: Callable[[str, list[Recorded], list[Recorded]], Awaitable[None]],
    ) -> None:
        after = 0
        while page := await one.stores.events.follow(after, PAGE):
            after = page[-1].position
            streams = list(
                dict.fromkeys(
                    recorded.stream for recorded in page if self._plan.has_event(recorded)
                )
            )
            for start in range(0, len(streams), STREAMS_AT_ONCE):
                chosen = streams[start : start + STREAMS_AT_ONCE]
                ours, theirs = [
                    _by_stream(await home.stores.events.read([(stream, 0) for stream in chosen]))
                    for home in (one, other)
                ]
                for stream in chosen:
                    if list(map(_content, ours.get(stream, []))) != list(
                        map(_content, theirs.get(stream, []))
                    ):
                        await differs(stream, ours.get(stream, []), theirs.get(stream, []))
                await self._looked(0)

    async def _check_stream(
        self, stream: str, ours: list[Recorded], theirs: list[Recorded]
    ) -> None:
        raise StoreError(
            f"the stream {stream} has {len(ours)} events in {self._source.url} and {len(theirs)} in"
            f" {self._target.url}, or others; the target stays paused. Choose another target"
        )

    async def _remove_stream(
        self, stream: str, ours: list[Recorded], theirs: list[Recorded]
    ) -> None:
        """The source had it when it was copied, and retention has removed it since.

        If it stayed here, an old request could become active again.
        """
        state = await self._state(stream, ours[0]) if ours and not theirs else None
        if state is None or not await self._target.stores.transactions.remove([(stream, state)]):
            raise StoreError(
                f"{self._target.url} has events in the stream {stream} that {self._source.url} does"
                " not have; it stays paused. Choose another target"
            )

    async def _state(self, stream: str, first: Recorded) -> State | None:
        meta, stores = meta_of(first), self._target.stores
        if (
            meta is None
            or meta.flow == CONFIG
            or request_stream(meta.flow, meta.tenant, meta.request_id) != stream
        ):
            return None
        view = await Loader(stores.events, stores.read_model).one(
            (meta.flow, meta.tenant, meta.request_id)
        )
        return None if view is None else view.state


def _by_stream(found: list[Recorded]) -> dict[str, list[Recorded]]:
    streams: dict[str, list[Recorded]] = {}
    for recorded in found:
        streams.setdefault(recorded.stream, []).append(recorded)
    return streams


def _content(recorded: Recorded) -> tuple[int, bytes, str, bytes, bytes]:
    return recorded.version, recorded.id, recorded.type, recorded.data, recorded.meta
