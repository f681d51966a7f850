"""Many random cases fast, and the smallest one that fails: Hypothesis shrinks better, this finds
more in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from tests.domain.moves import Life
from tests.domain.world import Plan

Case = TypeVar("Case", Life, Plan)


def first_failure(
    make: Callable[[Random], Case], check: Callable[[Case], object], seed: int, count: int
) -> str:
    """What the smallest failing case says, and the case; empty when all hold."""
    random = Random(seed)
    for _ in range(count):
        case = make(random)
        if failure(check, case):
            case = smallest(case, check)
            return f"{failure(check, case)}\n{case}"
    return ""


def finds(
    promise: str, make: Callable[[Random], Case], check: Callable[[Case], object], count: int
) -> bool:
    """Whether that very promise is seen to be broken, whatever else is."""
    random = Random(0)
    return any(failure(check, make(random)).startswith(promise) for _ in range(count))


def failure(check: Callable[[Case], object], case: Case) -> str:
    """The broken promise. Any other exception breaks one too: no command may blow up."""
    try:
        check(case)
    except AssertionError as broken:
        return str(broken).partition("\n")[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def smallest(case: Case, check: Callable[[Case], object]) -> Case:
    """Without every step that the failure does not need."""
    index = 0
    while index < _length(case):
        less = _without(case, index)
        if failure(check, less):
            case, index = less, 0
        else:
            index += 1
    return case


def _length(case: Life | Plan) -> int:
    return len(case.steps if isinstance(case, Life) else case.turns)


def _without(case: Case, index: int) -> Case:
    if isinstance(case, Life):
        return replace(case, steps=case.steps[:index] + case.steps[index + 1 :])
    return replace(case, turns=case.turns[:index] + case.turns[index + 1 :])
