"""What every store of views promises the sweep: nothing that needs a look is overlooked, and
nothing else is shown.
"""

from collections.abc import Collection

from msgspec.structs import replace

from gesta.domain.ids import id_floor
from gesta.domain.state import QUEUE_HORIZON_MS, State
from gesta.ports.read_model import FROM_THE_START, Cursor, View
from gesta.testing.contracts.harness import Harness
from gesta.testing.contracts.samples import (
    MADE_MS,
    OLD_MS,
    fresh_name,
    fresh_view,
    moved_on,
)
from gesta.testing.contracts.suite import Contract

#: More than any test leaves behind, so that requests of others do not crowd out ours.
MANY = 10_000
#: Long after every sample was made.
LATER_MS = MADE_MS + 60_000


class DueViewsContract(Contract):
    needs = frozenset({"read_model", "sweep_index"})

    async def test_a_request_is_due_from_its_moment_on_and_not_before(
        self, harness: Harness
    ) -> None:
        view = await _saved(harness, expires_at=1000)
        assert await _due(harness, 999, [view]) == []
        assert await _due(harness, 1000, [view]) == [view]
        assert await _due(harness, LATER_MS, [view]) == [view]

    async def test_due_requests_come_earliest_first(self, harness: Harness) -> None:
        views = [await _saved(harness, expires_at=at) for at in (3000, 1000, 2000)]
        assert await _due(harness, 5000, views) == [views[1], views[2], views[0]]

    async def test_no_more_due_requests_are_returned_than_asked_for(self, harness: Harness) -> None:
        for _ in range(3):
            await _saved(harness, expires_at=1)
        found, _ = await harness.sweep_index.due(1, 2)
        assert len(found) == 2

    async def test_the_time_of_the_next_due_request_is_returned(self, harness: Harness) -> None:
        far_ms = MADE_MS * 2
        for at in (far_ms, far_ms + 500, far_ms + 300):
            await _saved(harness, expires_at=at)
        _, next_at = await harness.sweep_index.due(far_ms, MANY)
        assert next_at == far_ms + 300

    async def test_a_request_that_needs_no_look_is_never_due(self, harness: Harness) -> None:
        views = [await _saved(harness), await _saved(harness, status="sent", expires_at=1000)]
        assert await _due(harness, LATER_MS, views) == []

    async def test_a_change_of_the_request_moves_its_moment(self, harness: Harness) -> None:
        view = await _saved(harness, expires_at=1000)
        later = View(replace(view.state, version=2, expires_at=3000), view.payload)
        await harness.read_model.save([later], [])
        assert await _due(harness, 2999, [view]) == []
        assert await _due(harness, 3000, [view]) == [later]
        await harness.read_model.save([moved_on(later, "sent")], [])
        assert await _due(harness, LATER_MS, [view]) == []

    async def test_a_postponed_request_is_due_again_at_the_later_moment(
        self, harness: Harness
    ) -> None:
        view, other = await _saved(harness, expires_at=1000), await _saved(harness, expires_at=1000)
        await harness.sweep_index.postpone([(view.state, 3000)])
        assert await _due(harness, 2999, [view, other]) == [other]
        assert await _due(harness, 3000, [view, other]) == [other, view]

    async def test_a_request_may_be_postponed_for_good(self, harness: Harness) -> None:
        view = await _saved(harness, expires_at=1000)
        await harness.sweep_index.postpone([(view.state, None)])
        assert await _due(harness, LATER_MS, [view]) == []

    async def test_a_request_that_has_changed_since_is_not_postponed(
        self, harness: Harness
    ) -> None:
        view = await _saved(harness, expires_at=1000)
        changed = View(replace(view.state, version=2, expires_at=2000), view.payload)
        await harness.read_model.save([changed], [])
        await harness.sweep_index.postpone([(view.state, None)])
        assert await _due(harness, 2000, [view]) == [changed]

    async def test_a_postponed_request_that_changes_is_due_by_its_own_moment(
        self, harness: Harness
    ) -> None:
        view = await _saved(harness, expires_at=1000)
        await harness.sweep_index.postpone([(view.state, None)])
        changed = View(replace(view.state, version=2, expires_at=2000), view.payload)
        await harness.read_model.save([changed], [])
        assert await _due(harness, 2000, [view]) == [changed]


class StaleViewsContract(Contract):
    needs = frozenset({"read_model", "sweep_index"})

    async def test_a_request_that_has_wanted_a_job_for_long_is_stale(
        self, harness: Harness
    ) -> None:
        queued = await _saved(harness)
        to_resend = await _saved(harness, status="unknown", policy="resend", due_at=MADE_MS)
        to_ask = await _saved(harness, status="unknown", policy="reconcile", due_at=MADE_MS)
        assert await _stale(harness, LATER_MS, [queued, to_resend, to_ask]) == [
            queued,
            to_resend,
            to_ask,
        ]

    async def test_a_request_that_changed_lately_is_not_stale(self, harness: Harness) -> None:
        view = await _saved(harness)
        assert await _stale(harness, MADE_MS, [view]) == []
        assert await _stale(harness, MADE_MS + 1, [view]) == [view]

    async def test_a_request_whose_job_was_due_lately_is_not_stale(self, harness: Harness) -> None:
        view = await _saved(harness, due_at=MADE_MS + 5000)
        assert await _stale(harness, MADE_MS + 5000, [view]) == []
        assert await _stale(harness, MADE_MS + 5001, [view]) == [view]

    async def test_a_request_that_wants_no_job_is_not_stale(self, harness: Harness) -> None:
        ended, quarantined = (
            await _saved(harness, status="failed"),
            await _saved(harness, status="unknown", policy="manual"),
        )
        far = await _saved(harness, due_at=MADE_MS + QUEUE_HORIZON_MS + 1)
        assert await _stale(harness, MADE_MS * 2, [ended, quarantined, far]) == []

    async def test_a_far_request_is_stale_once_the_sweep_has_looked_at_it(
        self, harness: Harness
    ) -> None:
        due_at = MADE_MS + QUEUE_HORIZON_MS + 1
        far, other = (
            await _saved(harness, due_at=due_at),
            await _saved(harness, due_at=due_at, expires_at=due_at + 9000),
        )
        await harness.sweep_index.postpone([(far.state, None), (other.state, due_at + 9000)])
        assert await _stale(harness, due_at, [far, other]) == []
        assert await _stale(harness, due_at + 1, [far, other]) == [far, other]

    async def test_a_request_that_came_to_its_end_is_no_longer_stale(
        self, harness: Harness
    ) -> None:
        view = await _saved(harness)
        await harness.read_model.save([moved_on(view, "sent")], [])
        assert await _stale(harness, LATER_MS, [view]) == []

    async def test_pages_of_any_size_go_through_all_and_show_each_once(
        self, harness: Harness
    ) -> None:
        """Also through those that changed in the same millisecond."""
        tenant = fresh_name("tenant")
        views = [
            await _saved(harness, tenant=tenant, updated_at=MADE_MS + late_ms)
            for late_ms in (5, 0, 0, 0, 3)
        ]
        views.append(
            await _saved(
                harness, tenant=tenant, status="unknown", policy="reconcile", due_at=MADE_MS
            )
        )
        for limit in (1, 2, MANY):
            assert _own(await walk(harness, LATER_MS, limit), views) == views

    async def test_a_page_without_any_does_not_look_like_the_end(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        dues = (None, LATER_MS, LATER_MS, LATER_MS, None)
        views = [
            await _saved(harness, tenant=tenant, due_at=due_at, updated_at=MADE_MS + n)
            for n, due_at in enumerate(dues)
        ]
        late = await _saved(harness, tenant=tenant, updated_at=LATER_MS)
        behind = await _saved(harness)
        assert _own(await walk(harness, LATER_MS, 1), [*views, late, behind]) == [
            views[0],
            views[4],
            behind,
        ]

    async def test_a_page_has_no_more_than_were_asked_for(self, harness: Harness) -> None:
        for _ in range(3):
            await _saved(harness)
        found, _ = await harness.sweep_index.stale(LATER_MS, FROM_THE_START, 2)
        assert len(found) <= 2

    async def test_a_walk_misses_no_unchanged_request_while_others_change(
        self, harness: Harness
    ) -> None:
        tenant = fresh_name("tenant")
        views = [
            await _saved(harness, tenant=tenant, updated_at=MADE_MS + n // 2) for n in range(9)
        ]
        leaving, stays = views[::3], [view for n, view in enumerate(views) if n % 3]
        found: list[State] = []
        cursor: Cursor | None = FROM_THE_START
        while cursor is not None:
            page, cursor = await harness.sweep_index.stale(LATER_MS, cursor, 1)
            found += page
            if leaving and leaving[0].state in page:
                # Changed once it was shown, which is where the walk stands: by turns to its end,
                # and to a later place.
                view = leaving.pop(0)
                state = replace(
                    view.state,
                    version=2,
                    updated_at=LATER_MS + 1,
                    status="queued" if len(leaving) % 2 else "sent",
                )
                await harness.read_model.save([View(state, view.payload)], [])
        assert leaving == []
        assert _own(found, stays) == stays

    async def test_requests_of_one_id_are_all_shown_wherever_a_page_ends(
        self, harness: Harness
    ) -> None:
        """A caller's own id may be another tenant's, too."""
        one = await _saved(harness)
        others = [await _saved(harness, id=one.state.id) for _ in range(2)]
        found = await walk(harness, LATER_MS, limit=1)
        wanted = {(view.state.flow, view.state.tenant) for view in (one, *others)}
        assert {(state.flow, state.tenant) for state in found if state.id == one.state.id} == wanted


async def walk(harness: Harness, before_ms: int, limit: int = MANY) -> list[State]:
    """All that are stale, page by page."""
    found: list[State] = []
    cursor: Cursor | None = FROM_THE_START
    while cursor is not None:
        page, following = await harness.sweep_index.stale(before_ms, cursor, limit)
        # A page that does not move on would be read for ever.
        assert following != cursor
        found, cursor = found + page, following
    return found


async def _saved(harness: Harness, **fields: object) -> View:
    view = fresh_view(**({"tenant": fresh_name("tenant")} | fields))
    await harness.read_model.save([view], [])
    return view


async def _due(harness: Harness, now_ms: int, own: list[View]) -> list[View]:
    """Those of our requests that are due."""
    found, _ = await harness.sweep_index.due(now_ms, MANY)
    return [view for view in found if view.state.id in {one.state.id for one in own}]


async def _stale(harness: Harness, before_ms: int, own: list[View]) -> list[View]:
    """Those of our requests that are stale."""
    return _own(await walk(harness, before_ms), own)


def _own(found: list[State], own: list[View]) -> list[View]:
    """Which of our requests were found, in the order in which we name them.

    None was found twice, nor otherwise than it was saved.
    """
    states = {view.state.id: view.state for view in own}
    ours = [state for state in found if state.id in states]
    assert sorted(state.id for state in ours) == sorted({state.id for state in ours})
    assert [state for state in ours if state != states[state.id]] == []
    return [view for view in own if view.state in ours]


class OldViewsContract(Contract):
    needs = frozenset({"read_model", "sweep_index"})

    async def test_old_ended_requests_of_all_tenants_are_found(self, harness: Harness) -> None:
        old = [
            await _saved_old(harness, flow=f"contract.flow{n % 2}", status="sent") for n in range(4)
        ]
        assert _ids(await _walk_old(harness, old)) == _ids(view.state for view in old)

    async def test_open_or_recently_changed_requests_are_not_old(self, harness: Harness) -> None:
        views = [
            await _saved_old(harness, status="queued"),
            await _saved_old(harness, status="unknown"),
            await _saved_old(harness, status="sent", updated_at=MADE_MS),
        ]
        assert await _walk_old(harness, views) == []

    async def test_what_was_made_lately_is_passed_over(self, harness: Harness) -> None:
        view = fresh_view(tenant=fresh_name("tenant"), status="sent", updated_at=OLD_MS - 1)
        new = View(replace(view.state, id=f"{id_floor(MADE_MS)}{view.state.id[13:]}"), view.payload)
        await harness.read_model.save([new], [])
        assert await _walk_old(harness, [new]) == []

    async def test_foreign_ids_show_no_age(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        views = [
            fresh_view(tenant=tenant, flow=flow, status="sent", updated_at=OLD_MS - 1)
            for flow in ("contract.foreign", "contract.own", "contract.foreign")
        ]
        new = [
            View(replace(view.state, id=f"{id_floor(MADE_MS)}{view.state.id[13:]}"), view.payload)
            for view in views
        ]
        await harness.read_model.save(new, [])
        found = await _walk_old(harness, new, limit=1, foreign={"contract.foreign"})
        assert _ids(found) == {new[0].state.id, new[2].state.id}

    async def test_small_steps_go_through_all(self, harness: Harness) -> None:
        tenant = fresh_name("tenant")
        views = [
            await _saved_old(harness, tenant=tenant, status=status)
            for status in ("queued", "sent", "queued", "failed", "sent")
        ]
        assert _ids(await _walk_old(harness, views, limit=1)) == _ids(
            view.state for view in views if view.state.is_terminal
        )


def _ids(states: object) -> set[str]:
    return {state.id for state in states}  # type: ignore[attr-defined]


async def _saved_old(harness: Harness, **fields: object) -> View:
    """Made long ago, by its id, too."""
    view = fresh_view(**({"tenant": fresh_name("tenant"), "updated_at": OLD_MS - 1} | fields))
    old = View(replace(view.state, id=f"{id_floor(OLD_MS - 5)}{view.state.id[13:]}"), view.payload)
    await harness.read_model.save([old], [])
    return old


async def _walk_old(
    harness: Harness, own: list[View], limit: int = 100, foreign: Collection[str] = ()
) -> list[State]:
    """Those of our requests that a walk through all finds."""
    found: list[State] = []
    place: tuple[str, str, str] | None = ("", "", "")
    while place is not None:
        page, place = await harness.sweep_index.old(OLD_MS, place, limit, foreign)
        found += page
    return [state for state in found if state.id in {view.state.id for view in own}]
