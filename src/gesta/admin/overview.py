"""What people who run gesta can see of it: counts, dead letters, what waits for a person, what was
set aside.
"""

from __future__ import annotations

from typing import Any

from gesta.admin.representations import payload_representation
from gesta.api_types.decisions import DeadLetter
from gesta.domain.ids import REQUEST_ID
from gesta.domain.state import State
from gesta.engine.pipeline import Pipeline
from gesta.engine.request import Request
from gesta.errors import NotFound
from gesta.intake.submit import Accepted
from gesta.ports.job_queue import HeldJob
from gesta.ports.read_model import Filter, Quarantined, View
from gesta.projector.partitions import place_of, projects
from gesta.requests.dead_letters import dead_letter
from gesta.requests.pages import Page, page_of

#: Changes of config that are told at a time.


class Overview:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stores = pipeline.environment.stores
        self._views = self._stores.read_model

    async def look_up(self, request_id: str, tenant: str = "default") -> View:
        """A request by its id alone, also of a flow that this process does not declare but the
        tenant has used; raises NotFound.
        """
        loader, known = self._pipeline.loader, self._pipeline.flows
        view = await loader.find(list(known), tenant, request_id)
        if view is None:
            used = sorted({flow for flow, _ in await self.counts(tenant)} - known.keys())
            view = await loader.find(used, tenant, request_id) if used else None
        if view is None:
            raise self._pipeline.not_found(request_id)
        return view

    async def shown_payload(self, view: View) -> dict[str, Any] | None:
        """What was asked, as it may be shown: what is personal in it masked, and told to be gone
        where the person was erased.
        """
        return payload_representation(
            view.payload,
            self._pipeline.flows.get(view.state.flow),
            await self._pipeline.subjects.erased(view),
        )

    async def by_key(
        self, key: str, tenant: str = "default", flow: str | None = None
    ) -> list[View]:
        """What a caller's key led to, newest first: of each flow one request at most, and one test.

        What was removed is not told.
        """
        flows = (
            [flow]
            if flow is not None
            else sorted({*self._pipeline.flows, *(used for used, _ in await self.counts(tenant))})
        )
        # Of a caller's own id, which some flows take, the key is the id itself.
        wanted = [(one, tenant, key) for one in flows if REQUEST_ID.fullmatch(key)]
        for one in flows:
            for test in (False, True):
                name = self._pipeline.identity.name_of(tenant, one, key, test=test)
                # Names are of one length, so the one behind the number before it is it, if anybody
                # has claimed it.
                before = (int.from_bytes(name, "big") - 1).to_bytes(len(name), "big")
                claims = await self._pipeline.environment.stores.key_claims.claims(before, 1)
                wanted += [
                    (one, tenant, claim.request_id) for claim in claims if claim.name == name
                ]
        found, _ = await self._pipeline.loader.load(wanted)
        return sorted(found.values(), key=lambda view: view.state.id, reverse=True)

    async def counts(self, tenant: str | None = None) -> dict[tuple[str, str], int]:
        """How many requests per (flow, status)."""
        return await self._views.counts(tenant)

    async def is_worked_on(self) -> bool:
        """Whether some process works on the store now."""
        now = self._pipeline.runtime.now_ms()
        return any(
            projects(role) and role.is_held(now) for role in await self._stores.leases.roles()
        )

    async def unseen(self, limit: int = 1_000) -> int:
        """How many events the views do not show yet, counted up to `limit`; less far where they are
        large.
        """
        stores = self._pipeline.environment.stores
        return len(
            await stores.events.follow(await place_of(stores.checkpoints, stores.partitions), limit)
        )

    async def quarantined(self, tenant: str | None = None, limit: int = 100) -> list[Quarantined]:
        """Events and jobs that could not be processed and were set aside."""
        return await self._views.quarantined(tenant, limit)

    async def dead_letters(
        self, tenant: str = "default", flow: str | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Requests that failed for good, newest first."""
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
        """The same, in pages of bounded work; `reason` leaves those that failed for it."""
        now = self._pipeline.runtime.now_ms()

        def pick(view: View) -> DeadLetter | None:
            if reason not in (None, view.state.reason):
                return None
            return dead_letter(view.state, self._pipeline.flows.get(view.state.flow), now)

        return await page_of(self._views, Filter(tenant, flow, "failed", before_id, limit), pick)

    async def undecided_page(
        self,
        tenant: str = "default",
        flow: str | None = None,
        *,
        before_id: str | None = None,
        limit: int = 50,
    ) -> Page[State]:
        """Requests whose outcome only a person can tell now, newest first."""

        def pick(view: View) -> State | None:
            return view.state if view.state.waits_for_a_person else None

        return await page_of(self._views, Filter(tenant, flow, "unknown", before_id, limit), pick)

    async def dead_letter(
        self, request_id: str, tenant: str = "default", *, flow: str | None = None
    ) -> DeadLetter:
        names = self._pipeline.flows if flow is None else [flow]
        view = await self._pipeline.loader.find(names, tenant, request_id)
        letter = None
        if view is not None:
            letter = dead_letter(
                view.state,
                self._pipeline.flows.get(view.state.flow),
                self._pipeline.runtime.now_ms(),
            )
        if letter is None:
            # Of a flow that this process does not know it cannot even tell that it exists.
            more = (
                ""
                if view is not None
                else (
                    "; if its flow is one of your own, name the program: --app MODULE:NAME or"
                    " GESTA_APP"
                )
            )
            raise NotFound("dead letter", request_id, more)
        return letter

    def request(self, letter: DeadLetter) -> Request:
        original = letter.original
        return Request(
            self._pipeline,
            Accepted(original.flow, original.tenant, original.request_id, "duplicate"),
        )

    async def held(self) -> list[HeldJob]:
        """How many jobs are held, by tenant and scope."""
        return await self._pipeline.environment.stores.job_holds.held()
