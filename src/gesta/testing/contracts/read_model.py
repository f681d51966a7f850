"""What every store of views promises about writing and reading them.

See also checkpoints.py and, for the sweep, view_sweeps.py.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from gesta.domain.lifecycles import Status, lifecycle_of
from gesta.ports.read_model import Filter, Move, View
from gesta.testing.contracts.harness import Capability, ReadModelHarness, reopen
from gesta.testing.contracts.samples import (
    fresh_id,
    fresh_name,
    fresh_quarantined,
    fresh_view,
    key_of,
)
from gesta.testing.contracts.suite import Contract


def moved_on(view: View, status: Status) -> View:
    """The same request, one event later."""
    state = view.state
    phase = lifecycle_of(state.flow).phase_of(status)
    return View(replace(state, status=status, phase=phase, version=state.version + 1), view.payload)


class ViewsContract(Contract):
    needs: ClassVar[frozenset[Capability]] = frozenset({"read_model"})

    async def test_a_view_is_read_as_it_was_saved(self, harness: ReadModelHarness) -> None:
        view = fresh_view(
            attempts=2, due_at=7, policy="ask", key="order-7", reason="größer", in_doubt=True
        )
        assert await harness.read_model.save([view], [], None) is True
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}

    async def test_a_newer_view_replaces_the_older(self, harness: ReadModelHarness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [], None)
        await harness.read_model.save([moved_on(view, "sent")], [], None)
        assert await harness.read_model.get([key_of(view)]) == {
            key_of(view): moved_on(view, "sent")
        }

    async def test_an_older_view_never_replaces_a_newer(self, harness: ReadModelHarness) -> None:
        view = fresh_view(tenant=fresh_name("tenant"))
        await harness.read_model.save([moved_on(view, "sent")], [], None)
        await harness.read_model.save([view], [], None)
        assert await harness.read_model.get([key_of(view)]) == {
            key_of(view): moved_on(view, "sent")
        }
        assert await harness.read_model.find(Filter(view.state.tenant)) == [moved_on(view, "sent")]

    async def test_many_views_are_saved_and_read_at_once(self, harness: ReadModelHarness) -> None:
        views = [fresh_view() for _ in range(300)]
        await harness.read_model.save(views, [], None)
        found = await harness.read_model.get(
            [*map(key_of, views), ("contract.flow", "acme", fresh_id())]
        )
        assert found == {key_of(view): view for view in views}

    async def test_a_view_is_shown_to_its_own_tenant_only(self, harness: ReadModelHarness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [], None)
        assert await harness.read_model.get([(view.state.flow, "other", view.state.id)]) == {}

    async def test_a_view_is_shown_under_its_own_flow_only(self, harness: ReadModelHarness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [], None)
        assert (
            await harness.read_model.get([("other.flow", view.state.tenant, view.state.id)]) == {}
        )

    async def test_one_id_under_two_tenants_makes_two_views(
        self, harness: ReadModelHarness
    ) -> None:
        """Ids of adopted jobs come from outside: nothing keeps two tenants from using the same."""
        ours = fresh_view(tenant=fresh_name("tenant"))
        theirs = fresh_view(tenant=fresh_name("tenant"), id=ours.state.id, status="sent", version=9)
        await harness.read_model.save([ours, theirs], [], None)
        assert await harness.read_model.get([key_of(ours)]) == {key_of(ours): ours}
        assert await harness.read_model.get([key_of(theirs)]) == {key_of(theirs): theirs}
        assert await harness.read_model.get([key_of(ours), key_of(theirs)]) == {
            key_of(ours): ours,
            key_of(theirs): theirs,
        }

    async def test_the_newest_requests_of_a_tenant_are_listed_first(
        self, harness: ReadModelHarness
    ) -> None:
        tenant = fresh_name("tenant")
        views = [fresh_view(tenant=tenant, flow=f"contract.flow{n % 2}") for n in range(4)]
        await harness.read_model.save([*views, fresh_view(tenant=fresh_name("tenant"))], [], None)
        assert await harness.read_model.find(Filter(tenant)) == views[::-1]

    async def test_a_listing_is_narrowed_by_flow_and_status(
        self, harness: ReadModelHarness
    ) -> None:
        tenant = fresh_name("tenant")
        statuses: list[Status] = ["queued", "sent", "queued"]
        one = [fresh_view(tenant=tenant, flow="contract.one", status=status) for status in statuses]
        two = [fresh_view(tenant=tenant, flow="contract.two", status=status) for status in statuses]
        await harness.read_model.save(one + two, [], None)
        assert await harness.read_model.find(Filter(tenant, flow="contract.one")) == one[::-1]
        assert await harness.read_model.find(Filter(tenant, status="sent")) == [two[1], one[1]]
        assert await harness.read_model.find(
            Filter(tenant, flow="contract.two", status="queued")
        ) == [
            two[2],
            two[0],
        ]

    async def test_a_listing_is_continued_before_the_last_id(
        self, harness: ReadModelHarness
    ) -> None:
        tenant = fresh_name("tenant")
        views = [fresh_view(tenant=tenant) for _ in range(5)]
        await harness.read_model.save(views, [], None)
        first_page = await harness.read_model.find(Filter(tenant, limit=2))
        assert first_page == [views[4], views[3]]
        rest = await harness.read_model.find(
            Filter(tenant, before_id=first_page[-1].state.id, limit=10)
        )
        assert rest == [views[2], views[1], views[0]]

    async def test_requests_are_counted_by_flow_and_status(self, harness: ReadModelHarness) -> None:
        tenant, flow = fresh_name("tenant"), fresh_name()
        views = [fresh_view(tenant=tenant, flow=flow) for _ in range(3)]
        await harness.read_model.save(
            [*views, fresh_view(flow=flow, tenant=fresh_name("tenant"))], [], None
        )
        await harness.read_model.save([moved_on(views[0], "sent")], [], None)
        assert await harness.read_model.counts(tenant) == {(flow, "queued"): 2, (flow, "sent"): 1}
        assert (await harness.read_model.counts())[flow, "queued"] == 3

    async def test_a_status_that_nobody_is_in_any_more_is_not_counted(
        self, harness: ReadModelHarness
    ) -> None:
        view = fresh_view(tenant=fresh_name("tenant"))
        await harness.read_model.save([view], [], None)
        await harness.read_model.save([moved_on(view, "sent")], [], None)
        assert await harness.read_model.counts(view.state.tenant) == {(view.state.flow, "sent"): 1}

    async def test_what_is_parked_is_listed_newest_first_by_tenant_or_for_all(
        self, harness: ReadModelHarness
    ) -> None:
        tenant = fresh_name("tenant")
        early, late, other = (
            fresh_quarantined(tenant=name, at_ms=at_ms)
            for name, at_ms in ((tenant, 1), (tenant, 9), (fresh_name("tenant"), 5))
        )
        await harness.read_model.save([], [late, early, other], None)
        assert await harness.read_model.quarantined(tenant, 10) == [late, early]
        assert await harness.read_model.quarantined(tenant, 1) == [late]
        assert {early, late, other} <= set(await harness.read_model.quarantined(None, 10_000))

    async def test_what_is_parked_twice_is_one_entry(self, harness: ReadModelHarness) -> None:
        poison = fresh_quarantined(tenant=fresh_name("tenant"))
        await harness.read_model.save([], [poison], None)
        await harness.read_model.save([], [poison], None)
        assert await harness.read_model.quarantined(poison.tenant, 10) == [poison]


class ViewsAfterRestartContract(Contract):
    needs: ClassVar[frozenset[Capability]] = frozenset({"read_model", "durable"})

    async def test_views_and_checkpoint_are_there_again(self, harness: ReadModelHarness) -> None:
        name, view = fresh_name(), fresh_view(tenant=fresh_name("tenant"))
        poison = fresh_quarantined(tenant=view.state.tenant)
        await harness.read_model.save([view], [poison], Move(name, 0, 7))
        await reopen(harness)
        assert await harness.read_model.checkpoint(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.read_model.quarantined(view.state.tenant, 10) == [poison]
