"""What every store of views promises a rebuild: nothing changes until the swap, and then everything
at once.
"""

from __future__ import annotations

from typing import ClassVar

from gesta.ports.read_model import Filter, Move, Quarantined, View, dispatched_of
from gesta.testing.contracts.harness import Capability, ReadModelHarness
from gesta.testing.contracts.read_model import moved_on
from gesta.testing.contracts.samples import fresh_name, fresh_quarantined, fresh_view, key_of
from gesta.testing.contracts.suite import Contract
from gesta.testing.contracts.sweeps import LATER_MS, MANY, walk


class ShadowContract(Contract):
    needs: ClassVar[frozenset[Capability]] = frozenset({"read_model"})

    async def test_a_shadow_shows_what_was_saved_in_it_and_nothing_else(
        self, harness: ReadModelHarness
    ) -> None:
        used, built = fresh_view(), fresh_view(version=2)
        await harness.read_model.save([used], [], None)
        shadow = await harness.read_model.shadow()
        await shadow.save([built])
        assert await shadow.get([key_of(used), key_of(built)]) == {key_of(built): built}

    async def test_a_shadow_changes_nothing_before_the_swap(
        self, harness: ReadModelHarness
    ) -> None:
        view = await _saved(harness)
        shadow = await harness.read_model.shadow()
        await shadow.save([moved_on(view, "sent"), fresh_view(tenant=view.state.tenant)])
        assert await harness.read_model.find(Filter(view.state.tenant)) == [view]
        assert await harness.read_model.counts(view.state.tenant) == {
            (view.state.flow, "queued"): 1
        }

    async def test_after_the_swap_the_views_are_those_of_the_shadow(
        self, harness: ReadModelHarness
    ) -> None:
        old = await _saved(harness, expires_at=1000)
        new = fresh_view(tenant=old.state.tenant, status="unknown", policy="ask", due_at=2000)
        shadow = await harness.read_model.shadow()
        await shadow.save([new])
        assert await shadow.swap([fresh_name()], 0, []) is True
        assert await harness.read_model.get([key_of(old), key_of(new)]) == {key_of(new): new}
        # S0-21: every index follows, none shows what is gone.
        assert await harness.read_model.find(Filter(old.state.tenant)) == [new]
        assert await harness.read_model.find(Filter(old.state.tenant, status="unknown")) == [new]
        assert await harness.read_model.counts(old.state.tenant) == {(new.state.flow, "unknown"): 1}
        assert (await harness.read_model.due(LATER_MS, MANY))[0] == [new]
        assert await walk(harness, LATER_MS) == [new.state]

    async def test_after_the_swap_views_are_saved_as_before(
        self, harness: ReadModelHarness
    ) -> None:
        view = await _saved(harness)
        shadow = await harness.read_model.shadow()
        await shadow.save([view])
        await shadow.swap([fresh_name()], 0, [])
        await harness.read_model.save([moved_on(view, "failed")], [], None)
        assert await harness.read_model.find(Filter(view.state.tenant, status="failed")) == [
            moved_on(view, "failed")
        ]
        assert await harness.read_model.find(Filter(view.state.tenant, status="queued")) == []

    async def test_the_swap_turns_the_checkpoint_back_and_remembers_where_jobs_had_been_put(
        self, harness: ReadModelHarness
    ) -> None:
        name, other = fresh_name(), fresh_name()
        far = 1000
        await harness.read_model.save([], [], Move(name, 0, far))
        await harness.read_model.begin(other, far + 500)
        assert await (await harness.read_model.shadow()).swap([name], 400, []) is True
        assert await harness.read_model.checkpoint(name) == 400
        assert await harness.read_model.checkpoint(dispatched_of(name)) == far
        assert await harness.read_model.checkpoint(other) == far + 500

    async def test_a_second_swap_before_the_projector_caught_up_forgets_nothing(
        self, harness: ReadModelHarness
    ) -> None:
        name = fresh_name()
        far = 1000
        await harness.read_model.save([], [], Move(name, 0, far))
        await (await harness.read_model.shadow()).swap([name], 400, [])
        await (await harness.read_model.shadow()).swap([name], 300, [])
        assert await harness.read_model.checkpoint(dispatched_of(name)) == far

    async def test_whoever_folded_onto_the_old_views_is_refused_after_the_swap(
        self, harness: ReadModelHarness
    ) -> None:
        name, view = fresh_name(), fresh_view()
        await harness.read_model.save([], [], Move(name, 0, 500))
        await (await harness.read_model.shadow()).swap([name], 400, [])
        assert await harness.read_model.save([view], [], Move(name, 500, 600)) is False
        assert await harness.read_model.get([key_of(view)]) == {}

    async def test_whoever_folded_before_the_swap_is_refused_even_at_the_place_it_turned_back_to(
        self, harness: ReadModelHarness
    ) -> None:
        name, view = fresh_name(), fresh_view()
        await harness.read_model.save([], [], Move(name, 0, 400, 0))
        await harness.read_model.save([], [], Move(name, 400, 1000, 0))
        await (await harness.read_model.shadow()).swap([name], 400, [])
        # It would put jobs that have been put before.
        assert await harness.read_model.save([view], [], Move(name, 400, 500, 0)) is False
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.save([view], [], Move(name, 400, 500, 1000)) is True

    async def test_a_shadow_that_is_ahead_of_the_projector_is_refused(
        self, harness: ReadModelHarness
    ) -> None:
        name, view = fresh_name(), await _saved(harness)
        await harness.read_model.save([], [], Move(name, 0, 500))
        shadow = await harness.read_model.shadow()
        assert await shadow.swap([name], 501, []) is False
        assert await harness.read_model.checkpoint(name) == 500
        assert await harness.read_model.find(Filter(view.state.tenant)) == [view]

    async def test_several_checkpoints_go_back_together_each_with_a_mark_of_its_own(
        self, harness: ReadModelHarness
    ) -> None:
        one, other = names = [fresh_name(), fresh_name()]
        await harness.read_model.save([], [], Move(one, 0, 500))
        await harness.read_model.save([], [], Move(other, 0, 700))
        assert await (await harness.read_model.shadow()).swap(names, 501, []) is False
        assert [await harness.read_model.checkpoint(name) for name in names] == [500, 700]
        assert await (await harness.read_model.shadow()).swap(names, 400, []) is True
        assert [await harness.read_model.checkpoint(name) for name in names] == [400, 400]
        assert [await harness.read_model.checkpoint(dispatched_of(name)) for name in names] == [
            500,
            700,
        ]

    async def test_parked_events_become_those_of_the_swap_and_parked_jobs_stay(
        self, harness: ReadModelHarness
    ) -> None:
        tenant, name = fresh_name("tenant"), fresh_name()
        event, job = (
            Quarantined(what, tenant, name, 1, "ValueError", 5) for what in ("event", "job")
        )
        await harness.read_model.save([], [event, job], None)
        met = fresh_quarantined(tenant, at_ms=9)
        await (await harness.read_model.shadow()).swap([fresh_name()], 0, [met])
        assert await harness.read_model.quarantined(tenant, 10) == [met, job]

    async def test_a_shadow_that_was_left_is_forgotten_by_the_next(
        self, harness: ReadModelHarness
    ) -> None:
        left, view = fresh_view(), fresh_view()
        await (await harness.read_model.shadow()).save([left])
        shadow = await harness.read_model.shadow()
        await shadow.save([view])
        assert await shadow.get([key_of(left)]) == {}
        await shadow.swap([fresh_name()], 0, [])
        assert await harness.read_model.get([key_of(left), key_of(view)]) == {key_of(view): view}


async def _saved(harness: ReadModelHarness, **fields: object) -> View:
    view = fresh_view(tenant=fresh_name("tenant"), **fields)
    await harness.read_model.save([view], [], None)
    return view
