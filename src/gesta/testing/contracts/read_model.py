"""What every store of views promises about writing and reading them.

See also checkpoints.py and, for the sweep, view_sweeps.py.
"""

from gesta.domain.lifecycles import Status
from gesta.ports.checkpoints import Move, dispatched_of
from gesta.ports.read_model import Filter, Quarantined, View
from gesta.testing.contracts.concurrency import race
from gesta.testing.contracts.harness import Harness, reopen
from gesta.testing.contracts.samples import (
    MADE_MS,
    fresh_id,
    fresh_name,
    fresh_quarantined,
    fresh_view,
    key_of,
    moved_on,
)
from gesta.testing.contracts.suite import Contract
from gesta.testing.contracts.sweep_index import LATER_MS, MANY, walk


class ReadModelContract(Contract):
    needs = frozenset({"read_model", "checkpoints"})

    async def test_a_view_is_read_as_it_was_saved(self, harness: Harness) -> None:
        view = fresh_view(
            attempts=2, due_at=7, policy="reconcile", key="order-7", reason="größer", in_doubt=True
        )
        assert await harness.read_model.save([view], []) is True
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}

    async def test_a_newer_view_replaces_the_older(self, harness: Harness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [])
        await harness.read_model.save([moved_on(view, "completed")], [])
        assert await harness.read_model.get([key_of(view)]) == {
            key_of(view): moved_on(view, "completed")
        }

    async def test_an_older_view_never_replaces_a_newer(self, harness: Harness) -> None:
        view = fresh_view(tenant=fresh_name("tenant"))
        await harness.read_model.save([moved_on(view, "completed")], [])
        await harness.read_model.save([view], [])
        assert await harness.read_model.get([key_of(view)]) == {
            key_of(view): moved_on(view, "completed")
        }
        assert await harness.read_model.find(Filter(view.state.tenant)) == [
            moved_on(view, "completed")
        ]

    async def test_a_large_batch_of_views_is_saved_and_read(self, harness: Harness) -> None:
        views = [fresh_view() for _ in range(300)]
        await harness.read_model.save(views, [])
        found = await harness.read_model.get(
            [*map(key_of, views), ("contract.flow", "acme", fresh_id())]
        )
        assert found == {key_of(view): view for view in views}

    async def test_a_view_is_shown_to_its_own_tenant_only(self, harness: Harness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [])
        assert await harness.read_model.get([(view.state.flow, "other", view.state.id)]) == {}

    async def test_a_view_is_shown_under_its_own_flow_only(self, harness: Harness) -> None:
        view = fresh_view()
        await harness.read_model.save([view], [])
        assert (
            await harness.read_model.get([("other.flow", view.state.tenant, view.state.id)]) == {}
        )

    async def test_one_id_under_two_tenants_makes_two_views(self, harness: Harness) -> None:
        """Ids of adopted jobs come from outside: nothing keeps two tenants from using the same."""
        ours = fresh_view(tenant=fresh_name("tenant"))
        theirs = fresh_view(
            tenant=fresh_name("tenant"), id=ours.state.id, status="completed", version=9
        )
        await harness.read_model.save([ours, theirs], [])
        assert await harness.read_model.get([key_of(ours)]) == {key_of(ours): ours}
        assert await harness.read_model.get([key_of(theirs)]) == {key_of(theirs): theirs}
        assert await harness.read_model.get([key_of(ours), key_of(theirs)]) == {
            key_of(ours): ours,
            key_of(theirs): theirs,
        }

    async def test_the_newest_requests_of_a_tenant_are_listed_first(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        views = [fresh_view(tenant=tenant, flow=f"contract.flow{n % 2}") for n in range(4)]
        await harness.read_model.save([*views, fresh_view(tenant=fresh_name("tenant"))], [])
        assert await harness.read_model.find(Filter(tenant)) == views[::-1]

    async def test_a_listing_is_narrowed_by_flow_and_status(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        statuses: list[Status] = ["queued", "completed", "queued"]
        one = [fresh_view(tenant=tenant, flow="contract.one", status=status) for status in statuses]
        two = [fresh_view(tenant=tenant, flow="contract.two", status=status) for status in statuses]
        await harness.read_model.save(one + two, [])
        assert await harness.read_model.find(Filter(tenant, flow="contract.one")) == one[::-1]
        assert await harness.read_model.find(Filter(tenant, status="completed")) == [two[1], one[1]]
        assert await harness.read_model.find(
            Filter(tenant, flow="contract.two", status="queued")
        ) == [
            two[2],
            two[0],
        ]

    async def test_a_listing_is_continued_before_the_last_id(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        views = [fresh_view(tenant=tenant) for _ in range(5)]
        await harness.read_model.save(views, [])
        first_page = await harness.read_model.find(Filter(tenant, limit=2))
        assert first_page == [views[4], views[3]]
        rest = await harness.read_model.find(
            Filter(tenant, before_id=first_page[-1].state.id, limit=10)
        )
        assert rest == [views[2], views[1], views[0]]

    async def test_requests_are_counted_by_flow_and_status(self, harness: Harness) -> None:
        tenant, flow = fresh_name("tenant"), fresh_name()
        views = [fresh_view(tenant=tenant, flow=flow) for _ in range(3)]
        await harness.read_model.save(
            [*views, fresh_view(flow=flow, tenant=fresh_name("tenant"))], []
        )
        await harness.read_model.save([moved_on(views[0], "completed")], [])
        assert await harness.read_model.counts(tenant) == {
            (flow, "queued"): 2,
            (flow, "completed"): 1,
        }
        assert (await harness.read_model.counts())[flow, "queued"] == 3

    async def test_a_status_without_requests_is_not_counted(self, harness: Harness) -> None:
        view = fresh_view(tenant=fresh_name("tenant"))
        await harness.read_model.save([view], [])
        await harness.read_model.save([moved_on(view, "completed")], [])
        assert await harness.read_model.counts(view.state.tenant) == {
            (view.state.flow, "completed"): 1
        }

    async def test_quarantined_items_are_listed_newest_first_by_tenant_or_for_all(
        self, harness: Harness
    ) -> None:
        tenant = fresh_name("tenant")
        early, late, other = (
            fresh_quarantined(tenant=name, at_ms=at_ms)
            for name, at_ms in ((tenant, 1), (tenant, 9), (fresh_name("tenant"), 5))
        )
        await harness.read_model.save([], [late, early, other])
        assert await harness.read_model.quarantined(tenant, 10) == [late, early]
        assert await harness.read_model.quarantined(tenant, 1) == [late]
        assert {early, late, other} <= set(await harness.read_model.quarantined(None, 10_000))

    async def test_an_item_quarantined_twice_is_one_entry(self, harness: Harness) -> None:
        poison = fresh_quarantined(tenant=fresh_name("tenant"))
        await harness.read_model.save([], [poison])
        await harness.read_model.save([], [poison])
        assert await harness.read_model.quarantined(poison.tenant, 10) == [poison]

    async def test_views_and_checkpoint_move_together(self, harness: Harness) -> None:
        name, view = fresh_name(), fresh_view()
        assert await harness.read_model.save([view], [], [Move(name, 0, 7)]) is True
        assert await harness.checkpoints.move([Move(name, 7, 9)]) is True
        assert await harness.checkpoints.position(name) == 9
        assert key_of(view) in await harness.read_model.get([key_of(view)])

    async def test_a_projection_from_an_unknown_checkpoint_writes_nothing(
        self, harness: Harness
    ) -> None:
        name, view = fresh_name(), fresh_view(tenant=fresh_name("tenant"))
        await harness.checkpoints.move([Move(name, 0, 7)])
        for before in (0, 6, 8):
            assert (
                await harness.read_model.save(
                    [view], [fresh_quarantined(tenant=view.state.tenant)], [Move(name, before, 20)]
                )
                is False
            )
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.quarantined(view.state.tenant, 10) == []

    async def test_of_projectors_that_race_one_moves_the_checkpoint(self, harness: Harness) -> None:
        name = fresh_name()
        views = [fresh_view() for _ in range(8)]
        answers = await race(
            *(
                harness.read_model.save([view], [], [Move(name, 0, n + 1)])
                for n, view in enumerate(views)
            )
        )
        assert sorted(answers) == [False] * 7 + [True]  # K-13
        assert await harness.checkpoints.position(name) == answers.index(True) + 1
        assert set(await harness.read_model.get([*map(key_of, views)])) == {
            key_of(views[answers.index(True)])
        }


class ReadModelAfterRestartContract(Contract):
    needs = frozenset({"read_model", "checkpoints", "durable"})

    async def test_views_and_checkpoint_are_there_again(self, harness: Harness) -> None:
        name, view = fresh_name(), fresh_view(tenant=fresh_name("tenant"))
        poison = fresh_quarantined(tenant=view.state.tenant)
        await harness.read_model.save([view], [poison], [Move(name, 0, 7)])
        await reopen(harness)
        assert await harness.checkpoints.position(name) == 7
        assert await harness.read_model.get([key_of(view)]) == {key_of(view): view}
        assert await harness.read_model.quarantined(view.state.tenant, 10) == [poison]


class ShadowContract(Contract):
    needs = frozenset({"read_model", "sweep_index", "checkpoints"})

    async def test_a_shadow_shows_what_was_saved_in_it_and_nothing_else(
        self, harness: Harness
    ) -> None:
        used, built = fresh_view(), fresh_view(version=2)
        await harness.read_model.save([used], [])
        shadow = await harness.read_model.shadow()
        await shadow.save([built])
        assert await shadow.get([key_of(used), key_of(built)]) == {key_of(built): built}

    async def test_a_shadow_changes_nothing_before_the_swap(self, harness: Harness) -> None:
        view = await _saved(harness)
        shadow = await harness.read_model.shadow()
        await shadow.save([moved_on(view, "completed"), fresh_view(tenant=view.state.tenant)])
        assert await harness.read_model.find(Filter(view.state.tenant)) == [view]
        assert await harness.read_model.counts(view.state.tenant) == {
            (view.state.flow, "queued"): 1
        }

    async def test_after_the_swap_the_views_are_those_of_the_shadow(self, harness: Harness) -> None:
        old = await _saved(harness, expires_at=1000)
        new = fresh_view(tenant=old.state.tenant, status="unknown", policy="reconcile", due_at=2000)
        shadow = await harness.read_model.shadow()
        await shadow.save([new])
        assert await shadow.swap([fresh_name()], 0, []) is True
        assert await harness.read_model.get([key_of(old), key_of(new)]) == {key_of(new): new}
        # S0-21: every index follows, none shows what is gone.
        assert await harness.read_model.find(Filter(old.state.tenant)) == [new]
        assert await harness.read_model.find(Filter(old.state.tenant, status="unknown")) == [new]
        assert await harness.read_model.counts(old.state.tenant) == {(new.state.flow, "unknown"): 1}
        assert (await harness.sweep_index.due(LATER_MS, MANY))[0] == [new]
        assert await walk(harness, LATER_MS) == [new.state]

    async def test_after_the_swap_views_are_saved_as_before(self, harness: Harness) -> None:
        view = await _saved(harness)
        shadow = await harness.read_model.shadow()
        await shadow.save([view])
        await shadow.swap([fresh_name()], 0, [])
        await harness.read_model.save([moved_on(view, "failed")], [])
        assert await harness.read_model.find(Filter(view.state.tenant, status="failed")) == [
            moved_on(view, "failed")
        ]
        assert await harness.read_model.find(Filter(view.state.tenant, status="queued")) == []

    async def test_the_swap_turns_the_checkpoint_back_and_remembers_where_jobs_had_been_put(
        self, harness: Harness
    ) -> None:
        name, other = fresh_name(), fresh_name()
        far = 1000
        await harness.checkpoints.move([Move(name, 0, far)])
        await harness.checkpoints.begin(other, far + 500)
        assert await (await harness.read_model.shadow()).swap([name], 400, []) is True
        assert await harness.checkpoints.position(name) == 400
        assert await harness.checkpoints.position(dispatched_of(name)) == far
        assert await harness.checkpoints.position(other) == far + 500

    async def test_a_second_swap_before_the_projector_caught_up_forgets_nothing(
        self, harness: Harness
    ) -> None:
        name = fresh_name()
        far = 1000
        await harness.checkpoints.move([Move(name, 0, far)])
        await (await harness.read_model.shadow()).swap([name], 400, [])
        await (await harness.read_model.shadow()).swap([name], 300, [])
        assert await harness.checkpoints.position(dispatched_of(name)) == far

    async def test_a_fold_onto_the_old_views_is_refused_after_the_swap(
        self, harness: Harness
    ) -> None:
        name, view = fresh_name(), fresh_view()
        await harness.checkpoints.move([Move(name, 0, 500)])
        await (await harness.read_model.shadow()).swap([name], 400, [])
        assert await harness.read_model.save([view], [], [Move(name, 500, 600)]) is False
        assert await harness.read_model.get([key_of(view)]) == {}

    async def test_a_fold_before_the_swap_is_refused_even_at_the_position_after_it(
        self, harness: Harness
    ) -> None:
        name, view = fresh_name(), fresh_view()
        await harness.checkpoints.move([Move(name, 0, 400, 0)])
        await harness.checkpoints.move([Move(name, 400, 1000, 0)])
        await (await harness.read_model.shadow()).swap([name], 400, [])
        # It would put jobs that have been put before.
        assert await harness.read_model.save([view], [], [Move(name, 400, 500, 0)]) is False
        assert await harness.read_model.get([key_of(view)]) == {}
        assert await harness.read_model.save([view], [], [Move(name, 400, 500, 1000)]) is True

    async def test_a_shadow_that_is_ahead_of_the_projector_is_refused(
        self, harness: Harness
    ) -> None:
        name, view = fresh_name(), await _saved(harness)
        await harness.checkpoints.move([Move(name, 0, 500)])
        shadow = await harness.read_model.shadow()
        assert await shadow.swap([name], 501, []) is False
        assert await harness.checkpoints.position(name) == 500
        assert await harness.read_model.find(Filter(view.state.tenant)) == [view]

    async def test_several_checkpoints_go_back_together_each_with_a_mark_of_its_own(
        self, harness: Harness
    ) -> None:
        one, other = names = [fresh_name(), fresh_name()]
        await harness.checkpoints.move([Move(one, 0, 500)])
        await harness.checkpoints.move([Move(other, 0, 700)])
        assert await (await harness.read_model.shadow()).swap(names, 501, []) is False
        assert [await harness.checkpoints.position(name) for name in names] == [500, 700]
        assert await (await harness.read_model.shadow()).swap(names, 400, []) is True
        assert [await harness.checkpoints.position(name) for name in names] == [400, 400]
        assert [await harness.checkpoints.position(dispatched_of(name)) for name in names] == [
            500,
            700,
        ]

    async def test_a_swap_replaces_quarantined_events_and_keeps_quarantined_jobs(
        self, harness: Harness
    ) -> None:
        tenant, name = fresh_name("tenant"), fresh_name()
        event, job = (
            Quarantined(what, tenant, name, 1, "ValueError", 5) for what in ("event", "job")
        )
        await harness.read_model.save([], [event, job])
        met = fresh_quarantined(tenant, at_ms=9)
        await (await harness.read_model.shadow()).swap([fresh_name()], 0, [met])
        assert await harness.read_model.quarantined(tenant, 10) == [met, job]

    async def test_a_shadow_that_was_left_is_forgotten_by_the_next(self, harness: Harness) -> None:
        left, view = fresh_view(), fresh_view()
        await (await harness.read_model.shadow()).save([left])
        shadow = await harness.read_model.shadow()
        await shadow.save([view])
        assert await shadow.get([key_of(left)]) == {}
        await shadow.swap([fresh_name()], 0, [])
        assert await harness.read_model.get([key_of(left), key_of(view)]) == {key_of(view): view}


async def _saved(harness: Harness, **fields: object) -> View:
    view = fresh_view(tenant=fresh_name("tenant"), **fields)
    await harness.read_model.save([view], [])
    return view


class UndecidedViewsContract(Contract):
    needs = frozenset({"read_model", "sweep_index"})

    async def test_what_waits_for_a_person_is_counted_with_the_time_of_the_oldest(
        self, harness: Harness
    ) -> None:
        count, oldest = await harness.read_model.undecided()
        early = min(oldest or MADE_MS, MADE_MS) - 1000
        for at_ms in (early, MADE_MS):
            await _saved(harness, status="unknown", policy="manual", updated_at=at_ms)
        await _saved(
            harness, status="unknown", policy="reconcile", due_at=MADE_MS, updated_at=early - 1
        )
        await _saved(harness, status="failed", updated_at=early - 1)
        assert await harness.read_model.undecided() == (count + 2, early)

    async def test_unknown_and_recently_failed_requests_are_counted_by_flow(
        self, harness: Harness
    ) -> None:
        flow = f"count.{fresh_name('x').replace('-', '_')}"
        for status, fields in (
            ("unknown", {"updated_at": MADE_MS - 1}),
            ("unknown", {"policy": "manual"}),
            ("failed", {}),
            ("failed", {"purged": True}),
            ("failed", {"updated_at": MADE_MS - 1}),
            ("queued", {}),
            ("completed", {}),
        ):
            await _saved(
                harness, **{"flow": flow, "status": status, "updated_at": MADE_MS} | fields
            )
        found = await harness.sweep_index.unknown(flow, 10)
        assert [state.updated_at for state in found] == [MADE_MS - 1, MADE_MS]
        assert {(state.flow, state.status) for state in found} == {(flow, "unknown")}
        assert await harness.sweep_index.unknown(flow, 1) == found[:1]
        counted = await harness.read_model.unsettled(MADE_MS)
        assert {key: count for key, count in counted.items() if key[0] == flow} == {
            (flow, "unknown"): 2,
            (flow, "failed"): 1,
        }
