from tests.http_api.conftest import api, api_here, store_url  # noqa: F401
