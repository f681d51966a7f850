"""HTTP for executors (`attempt.http`).

`client.py` is what a flow sees, `transport.py` the port, `aiohttp_transport.py` the real transport,
`gesta.sandbox` its fake. Only the real transport imports aiohttp.
"""

from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.outbound.http.client import (
    Answer,
    AttemptEnded,
    Http,
    ProviderRefusal,
    after_status,
    retry_after_seconds,
    status_reason,
)
from gesta.outbound.http.transport import (
    Headers,
    HttpRequest,
    HttpResponse,
    Transport,
    TransportError,
)

__all__ = [
    "Answer",
    "AttemptEnded",
    "Headers",
    "Http",
    "HttpRequest",
    "HttpResponse",
    "PrivateAddressGuard",
    "ProviderRefusal",
    "Transport",
    "TransportError",
    "after_status",
    "retry_after_seconds",
    "status_reason",
]
