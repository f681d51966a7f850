"""Seeds and example budgets: few and the same in `make test`, many and new in `make test-long`."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports them: a failed assertion shows its values.
pytest.register_assert_rewrite("gesta.testing.contracts", "tests.contracts.random_walk")

# Every `gesta serve` of a test answers on a free port.
os.environ["GESTA_API_PORT"] = "0"

# No deadline: a shared machine may be slow without anything being wrong. Derandomised: the gate
# gives the same answer each time.
_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=25, derandomize=True, **_SHARED)  # type: ignore[arg-type]
settings.register_profile("test", max_examples=100, derandomize=True, **_SHARED)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=2000, print_blob=True, **_SHARED)  # type: ignore[arg-type]
settings.load_profile("test")

#: What `--seeds` is when nobody says anything: enough for tests that take milliseconds. Where each
#: seed takes seconds, one will do.
FEW = 3
#: Commands, calls and programs, each on an engine of its own.
FROM_OUTSIDE = (
    "tests/cli/",
    "tests/client/",
    "tests/demo/",
    "tests/docs/",
    "tests/engine/test_any_crash.py",
    "tests/flows/test_contract.py",
    "tests/http_api/",
    "tests/maintenance/store_copy/",
    "tests/pipeline/",
    "tests/stores/test_bad_stores.py",
    "tests/subscriptions/test_end_to_end.py",
    "tests/testing/test_plugin.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gesta")
    group.addoption(
        "--seeds",
        type=int,
        default=FEW,
        help="how many seeds each test that takes `seed` runs with",
    )
    group.addoption("--first-seed", type=int, default=0, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = (
            metafunc.config.getoption("--first-seed"),
            metafunc.config.getoption("--seeds"),
        )
        marked = [
            pytest.param(seed, marks=pytest.mark.seeds) for seed in range(first, first + count)
        ]
        metafunc.parametrize("seed", marked)
    if "crash_seed" in metafunc.fixturenames:
        first, count = (
            metafunc.config.getoption("--first-seed"),
            metafunc.config.getoption("--seeds"),
        )
        marks = [pytest.mark.seeds, pytest.mark.slow]
        seeds = range(first, first + (1 if count <= FEW else count))
        metafunc.parametrize("crash_seed", [pytest.param(seed, marks=marks) for seed in seeds])


@pytest.fixture(autouse=True)
def told_how_to_replay(request: pytest.FixtureRequest) -> None:
    """Shown when the test fails."""
    if "crash_seed" in request.fixturenames:
        seed = request.getfixturevalue("crash_seed")
        print(
            f"replay: .venv/bin/python -m pytest {request.node.nodeid!r} --seeds 1 --first-seed"
            f" {seed}"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever has to do with a server is slow, and so is what goes the whole road from outside:
    `make quick` does neither.
    """
    for item in items:
        if "postgresql" in item.nodeid or item.nodeid.startswith(FROM_OUTSIDE):
            item.add_marker(pytest.mark.slow)
