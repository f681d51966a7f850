"""How long to wait: jitter, caps, schedules, and what a provider asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gesta.domain.retry_policy import LONGEST_WAIT_SECONDS, RetryPolicy

CHANCES = st.floats(0.0, 1.0, exclude_max=True)
ALMOST_ONE = 1 - 2**-53


def test_the_default_is_full_jitter_from_one_second_to_a_minute():
    # S1-19: full jitter, base 1 s, cap 60 s
    policy = RetryPolicy(attempts=12)
    ceilings = [policy.delay_seconds(made, ALMOST_ONE) for made in range(1, 12)]
    assert ceilings == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60])
    assert [policy.delay_seconds(made, 0.0) for made in range(1, 12)] == [0.0] * 11
    assert policy.delay_seconds(4, 0.5) == 4.0


@given(made=st.integers(1, 40), chance=CHANCES, asked=st.floats(0.0, 1e6))
def test_the_wait_is_never_shorter_than_the_provider_asked_for(
    made: int, chance: float, asked: float
):
    # S1-19: delay = max(backoff, Retry-After)
    # R1-27: exponential backoff with jitter; Retry-After honoured
    delay = RetryPolicy(attempts=41).delay_seconds(made, chance, asked)
    backoff = chance * min(60.0, 2.0 ** (made - 1))
    assert delay == max(backoff, asked)


@given(made=st.integers(0, 10_000), chance=CHANCES, attempts=st.integers(1, 5000))
def test_the_budget_counts_the_first_attempt_and_ends_it(made: int, chance: float, attempts: int):
    # S1-19: max attempts per namespace
    delay = RetryPolicy(attempts=attempts).delay_seconds(made, chance, 5.0)
    assert (delay is None) == (made >= attempts)


def test_a_policy_of_many_attempts_does_not_overflow():
    assert RetryPolicy(attempts=10**6).delay_seconds(10**6 - 1, 0.5) == 30.0


def test_a_schedule_is_followed_its_last_value_repeats_and_it_is_only_ever_stretched():
    policy = RetryPolicy(attempts=6, schedule_seconds=(5.0, 300.0, 1800.0), schedule_jitter=0.1)
    assert [policy.delay_seconds(made, 0.0) for made in range(7)] == [
        5.0,
        5.0,
        300.0,
        1800.0,
        1800.0,
        1800.0,
        None,
    ]
    assert policy.delay_seconds(2, 0.5) == pytest.approx(315.0)
    # The cap belongs to the doubling: a schedule may wait for a day.
    assert RetryPolicy(schedule_seconds=(86_400.0,)).delay_seconds(1, 0.0) == 86_400.0


@pytest.mark.parametrize("asked", [1e30, float("inf")])
def test_a_wait_that_no_event_could_hold_is_cut_to_a_year(asked: float):
    assert RetryPolicy().delay_seconds(1, 0.5, asked) == LONGEST_WAIT_SECONDS == 366 * 86_400


@pytest.mark.parametrize("asked", [-5.0, float("nan")])
def test_a_senseless_wish_is_ignored(asked: float):
    # S1-19: bad value ignored
    assert RetryPolicy().delay_seconds(1, 0.5, asked) == 0.5


def test_the_same_chance_gives_the_same_wait():
    policy = RetryPolicy()
    assert policy.delay_seconds(3, 0.37) == policy.delay_seconds(3, 0.37)
