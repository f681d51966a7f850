"""A request as the contract of the message requests shows it."""

from __future__ import annotations

from typing import Any

import msgspec

from gesta.flows.slack.message import Message
from gesta.views import View

_decode = msgspec.json.Decoder(Message).decode


def snapshot(view: View) -> dict[str, Any]:
    """Its fields by their names in the contract; codes that the request does not name are left out."""
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
