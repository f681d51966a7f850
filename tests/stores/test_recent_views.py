"""Views that a process remembers: a bounded number of them, and a bounded size."""

from __future__ import annotations

from gesta.ports.read_model import View
from gesta.stores.recent_views import BYTES, LENGTH, RecentViews, Saved
from gesta.testing.contracts.samples import fresh_view

NEWER = Saved(moved=True, all_newer=True)


def keys(views: list[View]) -> list[tuple[str, str, str]]:
    return [(view.state.flow, view.state.tenant, view.state.id) for view in views]


def test_the_cache_keeps_no_more_bytes_than_its_limit():
    recent = RecentViews()
    views = [View(fresh_view().state, bytes(1024 * 1024)) for _ in range(100)]
    for view in views:
        recent.committed([view], NEWER)
    found, _ = recent.get(keys(views))
    assert 0 < sum(len(view.payload) for view in found.values()) <= BYTES
    assert keys(views)[-1] in found, "the newest ones stay"


def test_a_view_that_is_written_again_or_has_ended_counts_once():
    recent, view = RecentViews(), View(fresh_view().state, bytes(BYTES // 2))
    for _ in range(10):
        recent.committed([view], NEWER)
    assert recent.get(keys([view]))[0] == dict(zip(keys([view]), [view], strict=True))
    ended = View(fresh_view(status="completed").state, bytes(BYTES))
    recent.committed([ended], NEWER)
    recent.committed([view], NEWER)
    assert recent.get(keys([view]))[0] == dict(zip(keys([view]), [view], strict=True))


def test_the_cache_keeps_no_more_views_than_its_limit():
    recent, views = RecentViews(), [fresh_view() for _ in range(LENGTH + 1)]
    recent.committed(views, NEWER)
    assert len(recent.get(keys(views))[0]) <= LENGTH
