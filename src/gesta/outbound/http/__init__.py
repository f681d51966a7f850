"""The one way out by HTTP.

Receives calls from a flow (`attempt.http`); a fault comes back as Retry, Unknown or Rejected.

`transport.py` is the port, `aiohttp_transport.py` the real one, `gesta.sandbox` its
double; `guard.py` says which
addresses may be reached and `http.py` what a flow sees. aiohttp is imported by the real transport
only.
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
