"""Station 7 of 7: what an executor is given.

Its types are real at run time, so that `help(Attempt)` and tools that read annotations work.
"""

import msgspec

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
    #: Where a question to the provider begins to look: no attempt of this intent can have begun
    #: before. In a call: when it began. Epoch milliseconds.
    first_ms: int = 0
    #: SMTP, for channels that hand in letters. None only in a test that gives none.
    mail: Mail | None = None
    #: What the flow keeps about people beside its requests. None only in a test that gives none.
    records: TenantRecords | None = None
    #: It was submitted as a test: whatever is done through the above reaches the sandbox, and
    #: nothing else may be done.
    test: bool = False
    #: Where providers may report what becomes of it, without a slash at the end; empty: nobody has
    #: said where we are reached.
    report_to: str = ""
    #: The operation to execute, where the lifecycle of the flow has several.
    operation: str = "send"
