"""Contract tests for stores: one test per promise, run against a store through its harness.

    from gesta.testing.contracts.event_store import EventStoreContract
    from my_store.harness import Harness

    class TestMyEvents(EventStoreContract):
        @pytest.fixture
        def harness_type(self):
            return Harness

The modules need pytest and pytest-asyncio with `asyncio_mode = "auto"`; harness.py and this file do
not. With
`pytest.register_assert_rewrite("gesta.testing.contracts")` in a conftest.py, before the first
import, a broken promise shows its values.
"""
