"""The data of a job: a pointer to a request, and nothing else (R0-1, R1-3).

What gesta puts has this shape. What a Node service puts is read strictly: a key too many may be a
secret, and a job never brings configuration.
"""

from typing import Annotated

import msgspec

from gesta.domain.ids import REQUEST_ID, TENANT, flow_of_external_queue
from gesta.errors import BadInput

_SLACK = "notification.slack"
ThreadTs = Annotated[str, msgspec.Meta(pattern=r"^\d{10}\.\d{6}$")]
Uuid = Annotated[str, msgspec.Meta(pattern=rf"^{REQUEST_ID.pattern}$")]
Tenant = Annotated[str, msgspec.Meta(pattern=rf"^{TENANT.pattern}$")]


class SendMessageJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """R0-1: {messageRequestId, tenant, threadTs?}."""

    message_request_id: Uuid
    tenant: Tenant
    thread_ts: ThreadTs | None = None

    @property
    def request_id(self) -> str:
        return self.message_request_id


class ExecuteJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """R1-3: {tenant, requestId, threadTs?}."""

    tenant: Tenant
    request_id: Uuid
    thread_ts: ThreadTs | None = None


Pointer = SendMessageJob | ExecuteJob


def pointer_to(flow: str, tenant: str, request_id: str) -> bytes:
    """The data of a job of ours."""
    if flow_of_external_queue(flow) == _SLACK:
        return msgspec.json.encode(SendMessageJob(request_id, tenant))
    return msgspec.json.encode(ExecuteJob(tenant, request_id))


def pointer_of(flow: str, data: str | bytes) -> Pointer:
    """The pointer in the data of a job. Raises BadInput that says what is wrong with it."""
    is_slack = flow_of_external_queue(flow) == _SLACK
    kind: type[Pointer] = SendMessageJob if is_slack else ExecuteJob
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        # The text names fields and rules, never a value.
        raise BadInput(f"job data of {flow}: {error}; write {_shape(kind)}") from None


def id_fields(flow: str) -> tuple[str, ...]:
    """The fields that say which request a job of this flow points to."""
    is_slack = flow_of_external_queue(flow) == _SLACK
    return ("messageRequestId" if is_slack else "requestId", "tenant")


def _shape(kind: type[Pointer]) -> str:
    names = (field.encode_name for field in msgspec.structs.fields(kind))
    return "{" + ", ".join(f"{name}?" if name == "threadTs" else name for name in names) + "}"
