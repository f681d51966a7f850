"""The HTTP client: `async with Client("http://127.0.0.1:8420", key) as gesta: await
gesta.submit(...)`.

`SyncClient` does the same without `await`. Answers have the types of `gesta.api_types`; errors are
those of `gesta.errors`. The first call opens the connection.
"""

from gesta.api_types.bulk import Bulk
from gesta.api_types.requests import Submit
from gesta.client.client import Client, SyncClient

__all__ = ["Bulk", "Client", "Submit", "SyncClient"]
