"""HTTP for executors (`attempt.http`).

`client.py` is what a flow sees, `transport.py` the port, `aiohttp_transport.py` the real transport,
`gesta.sandbox` its fake. Only the real transport imports aiohttp.
"""

from gesta.outbound.address_guard import PrivateAddressGuard
from gesta.outbound.http.client import (
    Answer,
    AttemptEnded,
    Http,
    after_fault,
    after_status,
    retry_after_seconds,
    status_reason,
)
from gesta.outbound.http.transport import (
    FaultReason,
    Headers,
    HttpRequest,
    HttpResponse,
    Transport,
    TransportFault,
)

__all__ = [
    "Answer",
    "AttemptEnded",
    "FaultReason",
    "Headers",
    "Http",
    "HttpRequest",
    "HttpResponse",
    "PrivateAddressGuard",
    "Transport",
    "TransportFault",
    "after_fault",
    "after_status",
    "retry_after_seconds",
    "status_reason",
]
