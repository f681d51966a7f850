"""What an executor receives.

The types are imported at run time, so that `help(Attempt)` and tools that read annotations work.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from gesta.domain.state import State
from gesta.outbound.http import Http
from gesta.outbound.rate_limits import Limits
from gesta.outbound.smtp import Mail
from gesta.tenants.config import TenantConfig
from gesta.tenants.flow_records import TenantRecords
from gesta.tenants.templates.templates import Templates


class Attempt(msgspec.Struct, frozen=True):
    """One run of an executor under a lease."""

    tenant: str
    flow: str
    request_id: str
    #: 1 for the first attempt of this request, counted from its events.
    number: int
    #: The idempotency key for the provider: the same for every attempt of one intent.
    key: str
    correlation_id: str
    #: When this attempt began, epoch milliseconds.
    at_ms: int
    #: HTTP that ends the attempt by itself when the answer is not a success.
    http: Http
    #: The tenant's config as it is now, and its secrets.
    config: TenantConfig
    #: The provider's rate limits: take a token right before the call.
    limits: Limits
    #: The tenant's templates as they are now.
    templates: Templates
    #: Reconciling starts to search here: no attempt of this intent began earlier. In an attempt:
    #: when it began. Epoch milliseconds.
    first_ms: int = 0
    #: SMTP, for channels that send e-mail. None only in tests.
    mail: Mail | None = None
    #: What the flow stores about people beside its requests. None only in tests.
    records: TenantRecords | None = None
    #: It was submitted as a test: everything above reaches only the sandbox, and the executor may
    #: do nothing else.
    test: bool = False
    #: The base URL for providers' reports, without a trailing slash; empty: not configured.
    report_to: str = ""
    #: The operation to execute, where the lifecycle of the flow has several.
    operation: str = "send"
    #: The number of this decision to have the effect; part of the key.
    intent: int = 1
    #: An earlier attempt of this intent may have had its effect.
    in_doubt: bool = False
    #: What the lifecycle keeps of the request (State.facts), e.g. the amounts of a transaction.
    facts: Any = {}
    #: (flow, id) of requests of the same tenant → as they are now. None only in tests.
    read: Callable[[Sequence[tuple[str, str]]], Awaitable[list[State]]] | None = None
    #: The journalled call, where the flow renders one: send exactly this.
    call: bytes = b""
    #: The same, as `render` prepared it in this attempt. None: an earlier attempt rendered it.
    prepared: Any = None
