"""Random deaths, lost answers and people, against a provider whose effects are counted."""

from __future__ import annotations

from hypothesis import given, settings

from tests.domain.search import first_failure
from tests.domain.world import Plan, live_through, plans, random_plan


@settings(max_examples=settings().max_examples * 2)
@given(plans)
def test_after_any_crash_there_is_one_effect_and_the_record_is_true(plan: Plan):
    world = live_through(plan)
    state = world.story.state
    assert state.is_terminal or (
        state.status == "unknown" and state.due_at is None and state.reason
    )


def test_one_effect_in_thousands_of_longer_worlds(seed: int):
    assert first_failure(random_plan, live_through, seed, 2000) == ""
