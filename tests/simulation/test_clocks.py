"""Clocks that differ by five minutes, and nothing else that is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.checks import TAKES_MAX
from tests.simulation.options import SKEW_MS_MAX, Rates, faultless
from tests.simulation.replay import simulate


@pytest.mark.slow
@pytest.mark.parametrize("skew_ms", [SKEW_MS_MAX, -SKEW_MS_MAX])
def test_a_worker_whose_clock_differs_from_the_queues_does_not_ask_in_a_tight_loop(skew_ms):
    for seed in range(4):
        chosen = replace(faultless(seed), skews_ms=(skew_ms,), rates=Rates(provider=0.5))
        assert simulate(seed, chosen).checks.takes_in_a_second < TAKES_MAX
