"""Names and ids: tenants, flows, request ids, keys, event ids, job ids."""

import re
from hashlib import blake2b

#: No braces, colons or blanks: the tenant is part of Redis hash tags and stream names.
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TENANT_RULE = "1 to 63 of A-Z a-z 0-9 . _ - and a letter or digit first"
#: Two or more parts, `kind.name`; no dash, because an event store's category ends at the first
#: dash.
FLOW = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
#: A request id as text. Its length is fixed, so that a stream name, built from tenant and id, names
#: one request only.
REQUEST_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
KEY_LENGTH_MAX = 512
#: The last byte of an event's id.
_ORDINALS = [bytes([ordinal]) for ordinal in range(256)]
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def id_text(raw: bytes) -> str:
    # In groups of two bytes from C, of which the outer ones are joined again.
    text = raw.hex("-", 2)
    return f"{text[:4]}{text[5:29]}{text[30:34]}{text[35:]}"


def id_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def id_floor(at_ms: int) -> str:
    """A text that sorts before every id that gesta makes from this millisecond on, and after all
    earlier ones.
    """
    text = f"{at_ms:012x}"
    return f"{text[:8]}-{text[8:]}"


def id_end() -> str:
    """A text that sorts after every id."""
    return "g"


def made_at(text: str) -> int | None:
    """When gesta made an id, in epoch milliseconds; None for an id that it did not make."""
    return int(text[:8] + text[9:13], 16) if UUID7.fullmatch(text) else None


def event_id(cause: bytes, ordinal: int) -> bytes:
    """The id of the n-th event that one command or attempt caused.

    A retried append has the same ids.
    """
    return cause[:15] + _ORDINALS[ordinal]


def idempotency_key(tenant: str, request_id: str, operation: str, intent: int) -> str:
    """The key by which the provider recognises a repeated call.

    It changes with the intent only, never with an attempt, a version or a worker.
    """
    return f"{tenant}:{request_id}:{operation}:{intent}"


def job_id(request_id: str, dispatch_version: int) -> str:
    """The id of the job for one opening of an operation.

    It has no colon and is never all digits: BullMQ refuses both.
    """
    return f"{request_id}-{dispatch_version}"


def own_job_id(tenant: str, flow: str, request_id: str, dispatch_version: int) -> str:
    """The id of the job of a request whose id the caller chose.

    Another tenant's request may have the same id, so the job id includes a digest of tenant and
    flow.
    """
    whose = blake2b(f"{tenant}\0{flow}".encode(), digest_size=8).hexdigest()
    return f"{request_id}.{whose}-{dispatch_version}"


def external_queue_of(flow: str, tenant: str) -> str:
    """The queue of one tenant's jobs of a flow that external workers execute.

    It is never the name of a flow, and no two tenants or flows share one.
    """
    return f"{external_queues_of(flow)}{tenant}"


def external_queues_of(flow: str) -> str:
    """The prefix of the names of all external queues of a flow."""
    return f"@{flow}/"


def flow_of_external_queue(external_queue: str) -> str:
    """The flow of an external queue; any other queue is named after its flow."""
    return (
        external_queue[1:].partition("/")[0] if external_queue.startswith("@") else external_queue
    )


def covers(pattern: str, flow: str) -> bool:
    """Whether a pattern matches a flow: its name, `kind.*` or `*`."""
    return pattern in ("*", flow) or (pattern.endswith(".*") and flow.startswith(pattern[:-1]))


def pattern_error(flow: object) -> str:
    """The error in a pattern of flows; empty if it is valid."""
    if not isinstance(flow, str) or not (
        flow == "*" or FLOW.fullmatch(flow.removesuffix(".*") + ".x")
    ):
        return (
            f"{flow!r} is not a flow; write 'kind.name', 'kind.*' for all flows of a kind, or '*'"
            " for all flows"
        )
    if not flow.endswith("*") and not FLOW.fullmatch(flow):
        return (
            f"{flow!r} is not a flow; a flow has two or more parts, e.g. 'billing.receipt';"
            f" '{flow}.*' means all flows of a kind"
        )
    return ""
