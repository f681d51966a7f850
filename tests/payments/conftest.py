from tests.fixtures import calls, gesta, ports  # noqa: F401
