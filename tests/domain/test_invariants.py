"""Random commands through decide and evolve, under random rules: what promises.py says holds at
every step.
"""

from __future__ import annotations

from random import Random
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, settings

from gesta.domain.events import Updated
from gesta.domain.notification.lifecycle import NOTIFICATION
from gesta.domain.state import State
from tests.domain.allowed import MOVES, kind_of
from tests.domain.moves import Life, lives, random_life
from tests.domain.promises import check_life
from tests.domain.search import first_failure

evolve = NOTIFICATION.evolve


@settings(max_examples=settings().max_examples * 3)
@given(lives)
def test_every_promise_holds_at_every_step_of_every_life(life: Life):
    # R1-48: transitions, invariants, idempotency on success and failure, over random command
    # sequences
    # R1-31, R1-32, S1-7: `success` of promises.py
    # S1-9: `endings` of promises.py
    # R1-28, S1-8: `openings` of promises.py, by the table of allowed.py
    check_life(life)


def test_every_promise_holds_in_thousands_of_longer_lives(seed: int):
    assert first_failure(random_life, check_life, seed, 2000) == ""


@pytest.mark.slow
def test_the_table_of_the_lifecycle_is_no_wider_than_life():
    """Every move that it allows is met in some life: one that is not might let an error through."""
    allowed = {(kind, *move) for kind, moves in MOVES.items() for move in moves}
    met: set[tuple[str, str | None, str]] = set()
    random = Random(28)
    # The rarest one comes ten times in so many, on average.
    for _ in range(40_000):
        state: State | None = None
        for event, meta in check_life(random_life(random)).history:
            before = None if state is None else state.status
            state = evolve(state, event, meta)
            met.add((kind_of(event), before, state.status))
        if met >= allowed:
            break
    assert met == allowed  # R1-28


def test_the_table_of_the_lifecycle_knows_every_event():
    changes = get_args(get_type_hints(Updated)["change"])
    assert MOVES.keys() == {
        kind.__name__ for kind in NOTIFICATION.event_names if kind is not Updated
    } | {f"Updated {one}" for one in changes}
