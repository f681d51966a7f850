"""Random commands through decide and evolve, under random rules: what promises.py says holds at every step."""

from __future__ import annotations

from hypothesis import given, settings

from tests.domain.moves import Life, lives, random_life
from tests.domain.promises import check_life
from tests.domain.search import first_failure


@settings(max_examples=settings().max_examples * 3)
@given(lives)
def test_every_promise_holds_at_every_step_of_every_life(life: Life):
    # R1-48: transitions, invariants, idempotency on success and failure, over random command sequences
    # R1-31, R1-32, S1-7: `success` of promises.py
    # S1-9: `endings` of promises.py
    check_life(life)


def test_every_promise_holds_in_thousands_of_longer_lives(seed: int):
    assert first_failure(random_life, check_life, seed, 2000) == ""
