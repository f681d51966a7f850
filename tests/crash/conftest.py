import pytest

#: What `--seeds` is when nobody says anything: enough for tests that take milliseconds. Here each seed takes seconds, so one will do.
FEW = 3


def pytest_generate_tests(metafunc):
    if "crash_seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        marks = [pytest.mark.seeds, pytest.mark.slow]
        seeds = range(first, first + (1 if count <= FEW else count))
        metafunc.parametrize("crash_seed", [pytest.param(seed, marks=marks) for seed in seeds])


@pytest.fixture(autouse=True)
def told_how_to_replay(request):
    """Shown when the test fails."""
    if "crash_seed" in request.fixturenames:
        seed = request.getfixturevalue("crash_seed")
        print(f"replay: .venv/bin/python -m pytest {request.node.nodeid!r} --seeds 1 --first-seed {seed}")
