"""`make simulate SEED=7`: replay one seed with its whole trace.

`make simulate RUNS=10000`: many, with the counts of what was met.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.checks import Broken
from tests.simulation.options import options
from tests.simulation.pinning import pin
from tests.simulation.replay import trace_lines
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--runs", type=int, default=1, help="how many seeds; one prints its whole trace"
    )
    parser.add_argument("--pin", action="store_true", help="look for the seeds of planted bugs")
    chosen = parser.parse_args()
    if chosen.pin:
        pin()
        return 0
    return _one(chosen.seed) if chosen.runs == 1 else _many(chosen.seed, chosen.runs)


def _one(seed: int) -> int:
    world, broken = World(options(seed)), None
    try:
        world.run()
    except Broken as error:
        broken = error
    print("\n".join(trace_lines(world, None)))
    print(f"digest {world.digest()}")
    print("all promises hold" if broken is None else f"BROKEN: {broken}")
    return 0 if broken is None else 1


def _many(first: int, runs: int) -> int:
    hits: Counter[str] = Counter()
    broken: list[str] = []
    began = time.perf_counter()
    for seed in range(first, first + runs):
        world = World(options(seed))
        try:
            world.run()
        except Broken as error:
            broken.append(f"SEED={seed}: {error}")
            print(broken[-1], file=sys.stderr)
        hits += world.hits
        hits["requests"] += len(world.database.events._streams)
        hits["calls"] += sum(len(calls) for calls in world.provider.calls.values())
        hits["simulated_seconds"] += round(world.trace[-1][0])
    for what, count in sorted(hits.items()):
        print(f"{count:>10,}  {what}")
    print(
        f"{runs:,} runs from seed {first} in {time.perf_counter() - began:.0f} s; {len(broken)}"
        " with a broken promise"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
