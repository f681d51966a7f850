from gesta.testing.harnesses.redis import (
    ClusterHarness,
    ClusterJobsHarness,
    JobsHarness,
    SharedJobsHarness,
)
from tests.contracts.adapters import harness_types
from tests.contracts.separate_events import separate_events_harness_types
from tests.contracts.separate_queue import apart_harness_types
from tests.contracts.separate_views import separate_views_harness_types


def pytest_generate_tests(metafunc):
    """Each promise is tested on every store that has what the promise needs."""
    if "harness_type" in metafunc.fixturenames:
        known = harness_types() | {"redis-cluster": ClusterHarness}
        if "job_store" in metafunc.cls.needs:
            known |= {
                "redis-shared": SharedJobsHarness,
                "redis-tagged": JobsHarness,
                "redis-cluster": ClusterJobsHarness,
            }
        if "transactions" in metafunc.cls.needs:
            known = known | apart_harness_types() | separate_events_harness_types()
        if metafunc.cls.needs & {"read_model", "sweep_index", "undispatched_jobs"}:
            known = known | separate_views_harness_types()
        able = {
            name: kind for name, kind in known.items() if metafunc.cls.needs <= kind.capabilities
        }
        metafunc.parametrize("harness_type", able.values(), ids=able.keys())
