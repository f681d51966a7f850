"""Which seeds find the planted bugs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from tests.domain.planting import plant
from tests.simulation.checks import Broken
from tests.simulation.options import options
from tests.simulation.planted import BUGS, PINNED, SEEDS_MAX, Bug
from tests.simulation.world import World


def seeds_of(name: str) -> list[int]:
    """The pinned seed of a bug, then all others."""
    pinned = msgspec.json.decode(PINNED.read_bytes(), type=dict[str, int])
    first = [pinned[name]] if name in pinned else []
    return list(dict.fromkeys([*first, *range(SEEDS_MAX)]))


def first_found(bug: Bug, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that shows the bug, and by which promise."""
    for seed in seeds:
        try:
            World(replace(options(seed), **bug.tuned)).run()
        except Broken as broken:
            return seed, broken.promise
    return None


def pin() -> None:
    """Look for every bug, from its pinned seed on, and write down where it was found."""
    found = {}
    for name, bug in BUGS.items():
        if bug.contract is not None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, bug.where, bug.name, bug.planted)
            seed, _ = first_found(bug, seeds_of(name)) or (None, None)
        if seed is not None:
            found[name] = seed
        print(f"{name}: {'not found' if seed is None else seed}", flush=True)
    PINNED.write_bytes(
        msgspec.json.format(msgspec.json.encode(dict(sorted(found.items())))) + b"\n"
    )
