"""The shapes that the contract of the message requests gives to others: the job, and the snapshot
of a request.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from gesta.flows.slack.message import Message, Ts
from gesta.ports.read_model import View

_decode = msgspec.json.Decoder(Message).decode


class SendMessageJob(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """A pointer to a request, and nothing else: no object and no secret fits in.

    `thread_ts` is a hint; the request has it too.
    """

    message_request_id: UUID
    tenant: str
    thread_ts: Ts | None = None


def job_of(view: View) -> SendMessageJob:
    return SendMessageJob(UUID(view.state.id), view.state.tenant, _decode(view.payload).thread_ts)


def snapshot(view: View) -> dict[str, Any]:
    """A request's fields by their names in the contract; codes that it does not name are left
    out.
    """
    message, state = _decode(view.payload), view.state
    codes = {
        "templateCode": message.template,
        "channelCode": message.channel_code,
        "recipient": message.recipient,
        "threadTs": message.thread_ts,
    }
    return {
        "id": state.id,
        "tenant": state.tenant,
        "workspaceCode": message.workspace,
        **{name: code for name, code in codes.items() if code is not None},
        "data": message.data,
        "status": state.status,
        "version": state.version,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        # A stream's first event has revision 0.
        "lastStreamRevision": state.version - 1,
    }
