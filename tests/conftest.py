"""Seeds and example budgets: few and the same in `make test`, many and new in `make test-long`."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import warm_start

# Before anything imports them: a failed assertion shows its values.
pytest.register_assert_rewrite("gesta.testing.contracts", "tests.contracts.random_walk")

warm_start.install()

# Thousands of tests stay from here to the end. The search for cycles need not look at them.
gc.disable()

# Every `gesta serve` of a test answers on a free port.
os.environ["GESTA_API_PORT"] = "0"

# No deadline: a shared machine may be slow without anything being wrong. Derandomised: the gate
# gives the same answer each time.
_SHARED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=25, derandomize=True, **_SHARED)
settings.register_profile("test", max_examples=100, derandomize=True, **_SHARED)
settings.register_profile("long", max_examples=2000, print_blob=True, **_SHARED)
settings.load_profile("test")

#: The default of `--seeds`: enough for tests that take milliseconds. Where each
#: seed takes seconds, one will do.
FEW = 3
#: A test with one of these in its name or its folder needs a server.
SERVERS = ("postgresql", "redis", "cluster", "kurrentdb", "sqs", "double", "tests/interop/")
#: Commands, calls and programs, each on an engine of its own; searches and crashes.
FROM_OUTSIDE = (
    "tests/benchmarks/",
    "tests/cli/",
    "tests/client/",
    "tests/crash/",
    "tests/demo/",
    "tests/docs/",
    "tests/engine/test_any_crash.py",
    "tests/flows/test_contract.py",
    "tests/http_api/",
    "tests/jobs/test_fuzz.py",
    "tests/jobs/test_killed_workers.py",
    "tests/jobs/test_shared_jobs.py",
    "tests/maintenance/store_copy/",
    "tests/pipeline/",
    "tests/power/",
    "tests/processes/",
    "tests/searches/",
    "tests/simulation/",
    "tests/stores/test_bad_stores.py",
    "tests/storm/",
    "tests/subscriptions/test_end_to_end.py",
    "tests/testing/test_plugin.py",
)
#: Whole folders of these. What imports them is slow, too.
NOT_IMPORTED = (*(one for one in FROM_OUTSIDE if one.endswith("/")), "tests/interop/")


#: These have the tests that take longest, the longest first. They are started first: then no
#: process is left with a long one when the others have nothing more to do.
LONGEST = (
    "tests/simulation/",
    "tests/storm/",
    "tests/processes/",
    "tests/http_api/test_search.py",
    "tests/http_api/test_tenant_walk.py",
    "tests/demo/",
    "tests/benchmarks/",
    "tests/pipeline/",
    "tests/subscriptions/test_end_to_end.py",
    "tests/maintenance/store_copy/",
    "tests/crash/",
    "tests/docs/",
    "tests/cli/",
    "tests/stores/postgresql/",
    "tests/http_api/",
)
#: Seconds between a test's time limit and the next attempt to end it, and how many there are.
RAISE_AGAIN_SECONDS, RAISES_MAX = 5.0, 3


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gesta")
    group.addoption(
        "--test-seconds",
        type=float,
        default=180.0,
        help="a test that takes longer fails; 0: no limit",
    )
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _limited(item):
        return (yield)


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """A test that hangs shows where, and fails. One that cannot be ended ends its process."""
    limit, raises = item.config.getoption("--test-seconds"), 0

    def end(*_: object) -> None:
        nonlocal raises
        raises += 1
        faulthandler.dump_traceback(2)
        if raises > RAISES_MAX:
            os._exit(1)
        pytest.fail(f"{item.nodeid} took more than {limit:g} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit, RAISE_AGAIN_SECONDS if limit else 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def explain_replay(request: pytest.FixtureRequest) -> None:
    """Shown when the test fails."""
    if "crash_seed" in request.fixturenames:
        seed = request.getfixturevalue("crash_seed")
        print(
            f"replay: .venv/bin/python -m pytest {request.node.nodeid!r} --seeds 1 --first-seed"
            f" {seed}"
        )


def pytest_unconfigure() -> None:
    """Nothing is left running."""
    warm_start.end()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What `make quick` leaves out as a whole is not even imported."""
    name = f"{collection_path.relative_to(config.rootpath).as_posix()}/"
    is_quick = "not slow" in config.getoption("markexpr")
    return True if is_quick and name.startswith(NOT_IMPORTED) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """`make quick` runs no test that needs a server or that goes the whole way from outside.

    They are marked here, before `-m` chooses.
    """
    if item.nodeid.startswith(FROM_OUTSIDE) or any(one in item.nodeid for one in SERVERS):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """The files keep their order, and what they share is made once."""
    starts = (number for number, start in enumerate(LONGEST) if item.nodeid.startswith(start))
    return next(starts, len(LONGEST))
