from tests.fixtures import ports  # noqa: F401
