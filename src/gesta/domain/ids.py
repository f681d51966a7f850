"""The names that cross every border: tenants, flows, request ids, keys, event ids."""

import re
from hashlib import blake2b

#: No braces, colons or blanks: the tenant is part of Redis hash tags and stream names.
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TENANT_RULE = "1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
#: Two or more parts, `kind.name`; no dash, because an event store's category ends at the first
#: dash.
FLOW = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
#: A request id as text. Its length is fixed, so that a stream's name, built from tenant and id, is
#: that of one request only.
REQUEST_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KEY_LENGTH_MAX = 512
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def id_text(raw: bytes) -> str:
    """16 bytes as the usual 36 characters."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes:
    """The 16 bytes behind the 36 characters."""
    return bytes.fromhex(text.replace("-", ""))


def id_floor(at_ms: int) -> str:
    """Sorts before every id of ours made from this millisecond on, and after all that were made
    earlier.
    """
    text = f"{at_ms:012x}"
    return f"{text[:8]}-{text[8:]}"


def id_end() -> str:
    """Sorts after every id."""
    return "g"


def made_at(text: str) -> int | None:
    """When an id of ours was made; None for one that is not ours."""
    return int(text[:8] + text[9:13], 16) if UUID7.fullmatch(text) else None


def event_id(cause: bytes, ordinal: int) -> bytes:
    """The id of the n-th event that one command or attempt caused: the same again when the append
    is retried.
    """
    return cause[:15] + ordinal.to_bytes(1, "big")


def idempotency_key(tenant: str, request_id: str, operation: str, intent: int) -> str:
    """What the provider dedupes by.

    It changes with the intent only: never with an attempt, a version or a worker.
    """
    return f"{tenant}:{request_id}:{operation}:{intent}"


def job_id(request_id: str, dispatch_version: int) -> str:
    """The queue's name for one opening of an operation; no colon and never all digits, which BullMQ
    refuses.
    """
    return f"{request_id}-{dispatch_version}"


def own_job_id(tenant: str, flow: str, request_id: str, dispatch_version: int) -> str:
    """The same where the caller brought the id of the request: another tenant's request may have
    it, too, so the name tells whose it is.
    """
    whose = blake2b(f"{tenant}\0{flow}".encode(), digest_size=8).hexdigest()
    return f"{request_id}.{whose}-{dispatch_version}"


def external_queue_of(flow: str, tenant: str) -> str:
    """Where the jobs of a flow stand that others execute: each tenant's by themselves.

    Never the name of a flow, and no two are alike.
    """
    return f"{external_queues_of(flow)}{tenant}"


def external_queues_of(flow: str) -> str:
    """How the names of all lanes of a flow begin, and no other's."""
    return f"@{flow}/"


def flow_of_external_queue(external_queue: str) -> str:
    """The flow of a lane; a flow is its own."""
    return (
        external_queue[1:].partition("/")[0] if external_queue.startswith("@") else external_queue
    )


def covers(pattern: str, flow: str) -> bool:
    """Whether a flow is meant by a name, by `kind.*` or by `*`."""
    return pattern in ("*", flow) or (pattern.endswith(".*") and flow.startswith(pattern[:-1]))


def pattern_fault(flow: object) -> str:
    """What is wrong with the name of a flow or a kind of them."""
    if not isinstance(flow, str) or not (
        flow == "*" or FLOW.fullmatch(flow.removesuffix(".*") + ".x")
    ):
        return f"{flow!r} is no flow; write 'kind.name', 'kind.*' for all of a kind, or '*' for all"
    if not flow.endswith("*") and not FLOW.fullmatch(flow):
        return (
            f"{flow!r} is no flow; flows have two parts or more, e.g. 'billing.receipt'; '{flow}.*'"
            " is all of a kind"
        )
    return ""
