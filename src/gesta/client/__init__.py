"""gesta over HTTP, for programs that are no engine: `async with Client("http://127.0.0.1:8420",
key) as gesta: await gesta.submit(...)`.

`SyncClient` is the same without `await`. Answers are the types that the API itself has; what goes
wrong are the errors of gesta.errors.
Importing this opens nothing; a connection is made by the first call.
"""

from gesta.api_types.bulk import Bulk
from gesta.api_types.requests import Submit
from gesta.client.client import Client, SyncClient

__all__ = ["Bulk", "Client", "Submit", "SyncClient"]
