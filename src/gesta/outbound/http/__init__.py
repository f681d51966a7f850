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
    after_transport_error,
    retry_after_seconds,
    status_reason,
)
from gesta.outbound.http.transport import (
    Headers,
    HttpRequest,
    HttpResponse,
    Transport,
    TransportError,
    TransportErrorReason,
)

__all__ = [
    "Answer",
    "AttemptEnded",
    "TransportErrorReason",
    "Headers",
    "Http",
    "HttpRequest",
    "HttpResponse",
    "PrivateAddressGuard",
    "ProviderRefusal",
    "Transport",
    "TransportError",
    "after_transport_error",
    "after_status",
    "retry_after_seconds",
    "status_reason",
]
