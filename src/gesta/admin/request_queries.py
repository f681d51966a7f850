"""What operators see of requests: one by its id or key, dead letters, unknown outcomes."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from gesta.admin.representations import payload_representation, request_representation
from gesta.api_types.decisions import DeadLetter
from gesta.api_types.requests import RequestRepresentation
from gesta.api_types.structs import OtherReason
from gesta.domain.codec import decode_meta, event_types
from gesta.domain.event_message import encode_dead_letter
from gesta.domain.ids import FLOW, REQUEST_ID
from gesta.domain.state import State
from gesta.engine.pipeline import Pipeline
from gesta.errors import NotFound
from gesta.intake.inbound.dead_letters import dead_letter_of
from gesta.ports.read_model import Filter, View
from gesta.requests.dead_letters import failure_of, has_reason
from gesta.requests.pages import READ_AT_ONCE, Page, page_of
from gesta.tenants.pauses import Pause


class Narrow(msgspec.Struct, frozen=True):
    """Conditions on requests beside those of a Filter. All given ones apply."""

    reason: str | None = None
    #: Created from then on, and before then: epoch milliseconds.
    since_ms: int | None = None
    until_ms: int | None = None
    #: Only requests that a pause, or missing or refused config, holds.
    held: bool = False
    #: Only test requests.
    test: bool = False

    def fits(self, state: State) -> bool:
        return (
            has_reason(state.reason, self.reason)
            and (self.since_ms is None or state.created_at >= self.since_ms)
            and (self.until_ms is None or state.created_at < self.until_ms)
            and (state.test or not self.test)
        )


#: The reasons that are named where a caller asks for one that is not there.
OTHERS_MAX = 5


def reasons_of(found: Iterable[State | RequestRepresentation]) -> list[OtherReason]:
    """The most frequent reasons of these requests."""
    counted = Counter((one.flow, one.reason) for one in found if one.reason)
    return [
        OtherReason(flow, reason, count)
        for (flow, reason), count in counted.most_common(OTHERS_MAX)
        if reason
    ]


class RequestQueries:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stores = pipeline.environment.stores
        self._views = self._stores.read_model

    async def look_up(
        self, request_id: str, tenant: str = "default", *, flow: str | None = None
    ) -> View:
        """A request by its id, also of a flow that this process does not declare.

        Raises NotFound, and AmbiguousId where several flows have a request with this id and `flow`
        names none of them.
        """
        loader, known = self._pipeline.loader, self._pipeline.flows
        if flow is not None:
            view = await loader.find([flow] if FLOW.fullmatch(flow) else [], tenant, request_id)
        else:
            view = await loader.find(known, tenant, request_id)
        if view is None and flow is None:
            used = sorted({flow for flow, _ in await self.counts(tenant)} - known.keys())
            view = await loader.find(used, tenant, request_id) if used else None
        if view is None:
            raise self._pipeline.not_found(request_id)
        (view,) = await self._pipeline.subjects.open_views([view])
        return view

    async def shown_payload(self, view: View) -> dict[str, Any] | None:
        """The payload with personal fields masked, and marked where the subject was erased."""
        return payload_representation(
            view.payload,
            self._pipeline.flows.get(view.state.flow),
            await self._pipeline.subjects.erased(view),
        )

    async def by_key(
        self, key: str, tenant: str = "default", flow: str | None = None
    ) -> list[View]:
        """The requests of a key, newest first: at most one of each flow, and one test of each."""
        flows = (
            [flow]
            if flow is not None
            else sorted({*self._pipeline.flows, *(used for used, _ in await self.counts(tenant))})
        )
        # Some flows take the caller's own id; there the key is the id.
        wanted = [(one, tenant, key) for one in flows if REQUEST_ID.fullmatch(key)]
        for one in flows:
            for test in (False, True):
                name = self._pipeline.identity.name_of(tenant, one, key, test=test)
                # `claims` lists what follows a name, so ask for what follows the name before.
                before = (int.from_bytes(name, "big") - 1).to_bytes(len(name), "big")
                claims = await self._stores.key_claims.claims(before, 1)
                wanted += [
                    (one, tenant, claim.request_id) for claim in claims if claim.name == name
                ]
        found, _ = await self._pipeline.loader.load(wanted)
        views = await self._pipeline.subjects.open_views(list(found.values()))
        return sorted(views, key=lambda view: view.state.id, reverse=True)

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """(flow, status) → number of requests."""
        return await self._views.counts(tenant)

    async def dead_letters(
        self, tenant: str = "default", flow: str | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Dead letters, newest first."""
        found: list[DeadLetter] = []
        before: str | None = None
        while len(found) < limit:
            page = await self.dead_letter_page(
                tenant, flow, before_id=before, limit=limit - len(found)
            )
            found += page.items
            if page.next is None:
                break
            before = page.next
        return found

    async def dead_letter_page(
        self,
        tenant: str = "default",
        flow: str | None = None,
        *,
        reason: str | None = None,
        before_id: str | None = None,
        limit: int = 50,
    ) -> Page[DeadLetter]:
        """A page of dead letters, found with a bounded number of reads."""
        now = self._pipeline.runtime.now_ms()

        def pick(view: View) -> DeadLetter | None:
            if not has_reason(view.state.reason, reason):
                return None
            return self._dead_letter(view.state, now)

        return await page_of(
            self._find_readable, Filter(tenant, flow, "failed", before_id, limit), pick
        )

    async def dead_letter_reasons(
        self, tenant: str = "default", flow: str | None = None
    ) -> list[OtherReason]:
        """The reasons of the newest dead letters of a flow; of all flows if it has none."""
        for one in dict.fromkeys((flow, None)):
            page = await self.dead_letter_page(tenant, one, limit=READ_AT_ONCE)
            if page.items:
                return reasons_of(page.items)
        return []

    async def request_page(
        self, find: Callable[[Filter], Awaitable[list[View]]], chosen: Filter, narrow: Narrow
    ) -> Page[View]:
        """A page of the requests that `find` finds and that `narrow` fits, with a bounded number of
        reads.
        """
        pausing, flows = self._pipeline.pausing, self._pipeline.flows
        if narrow.held:
            await pausing.paused(chosen.tenant)

        def pick(view: View) -> View | None:
            is_held = narrow.held and pausing.pause_of(view, flows.get(view.state.flow)) is not None
            return view if narrow.fits(view.state) and (is_held or not narrow.held) else None

        return await page_of(find, chosen, pick)

    async def undecided_page(
        self,
        tenant: str = "default",
        flow: str | None = None,
        *,
        before_id: str | None = None,
        limit: int = 50,
    ) -> Page[State]:
        """Requests with an unknown outcome that a person has to resolve, newest first."""

        def pick(view: View) -> State | None:
            return view.state if view.state.waits_for_a_person else None

        return await page_of(
            self._find_readable, Filter(tenant, flow, "unknown", before_id, limit), pick
        )

    async def _find_readable(self, chosen: Filter) -> list[View]:
        return await self._pipeline.subjects.open_views(await self._views.find(chosen))

    async def dead_letter(
        self, request_id: str, tenant: str = "default", *, flow: str | None = None
    ) -> DeadLetter:
        """Raises NotFound, also for a request that has not failed or was purged."""
        view = await self.look_up(request_id, tenant, flow=flow)
        letter = self._dead_letter(view.state, self._pipeline.runtime.now_ms())
        if letter is None:
            raise NotFound("dead letter", request_id)
        key = (view.state.flow, tenant, request_id)
        types = event_types(view.state.flow)
        history = [
            (types.decode(one.type, one.data), decode_meta(one.meta))
            for one in await self._pipeline.loader.history(key)
        ]
        message = dead_letter_of(view, history)
        if message is None:
            return letter
        return msgspec.structs.replace(
            letter, message=msgspec.json.decode(encode_dead_letter(message))
        )

    def _dead_letter(self, state: State, now_ms: int) -> DeadLetter | None:
        failure = failure_of(state, self._pipeline.flows.get(state.flow), now_ms)
        if failure is None:
            return None
        fields = msgspec.structs.asdict(request_representation(state))
        return DeadLetter(**fields, failure=failure)

    async def pauses_of(self, views: Sequence[View]) -> list[Pause | None]:
        """The pause that holds each request, if any. Reads config, not the queue."""
        pausing = self._pipeline.pausing
        for tenant in {view.state.tenant for view in views}:
            await pausing.paused(tenant)
        return [pausing.pause_of(view, self._pipeline.flows.get(view.state.flow)) for view in views]
