"""The checkers, checked: bugs planted into the engine, each found by the simulation, on seeds that
are clean without it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gesta.testing.harnesses.memory import Harness
from tests.domain.planting import plant
from tests.simulation.options import options
from tests.simulation.pinning import first_found, seeds_of
from tests.simulation.planted import BUGS, SEEDS_MAX, plants
from tests.simulation.world import World

#: The simulation is worth nothing unless it finds at least these. In the words of those who asked
#: for it, and as they are planted.
REQUIRED = {
    "ack before record": "acked_before_it_is_recorded",
    "no token check": "no_token_check",
    "guard without stream head": "guard_without_stream_head",
    "new key on retry": "new_key_on_retry",
    "checkpoint before effect": "checkpoint_before_effect",
    "rebuild that dispatches": "rebuild_that_dispatches",
    "redrive as a new intent while unknown": "redrive_as_a_new_intent_while_unknown",
    "cancel that does not drop": "cancel_that_does_not_drop",
}


def test_every_bug_that_has_to_be_found_is_planted():
    assert {words for words, name in REQUIRED.items() if name not in BUGS} == set()
    # Each is looked for by one of the two tests below.
    assert all(BUGS[name].found_by or BUGS[name].contract for name in REQUIRED.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.contract is None])
def test_the_simulation_finds(name, monkeypatch):
    bug = BUGS[name]
    with monkeypatch.context() as planted:
        plant(planted, bug.where, bug.name, bug.planted)
        found = first_found(bug, seeds_of(name))
    assert found is not None, f"{name} was not found in {SEEDS_MAX} seeds"
    seed, promise = found
    assert promise in bug.found_by
    # The same seed without the bug: it is the bug that was found.
    World(replace(options(seed), **bug.tuned)).run()


@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.contract is not None])
async def test_the_contract_finds_what_the_simulation_cannot_reach(name, monkeypatch, tmp_path):
    bug = BUGS[name]
    assert bug.contract is not None
    suite, promise = bug.contract
    monkeypatch.setattr(bug.where, bug.name, bug.planted)
    harness = Harness(tmp_path)
    await harness.open()
    with pytest.raises(AssertionError):
        await promise(suite(), harness)


def test_a_bug_that_names_nothing_of_the_product_is_refused():
    with pytest.raises(AssertionError, match="planted nowhere"):
        plants(World, "no_such_function", "x")(first_found)
