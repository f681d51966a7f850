"""What the engine itself has to say, as a message to a channel: an id, or the code of a
`slack.channel`.
"""

from __future__ import annotations

from gesta.flows.flow import Notice, Notices, Payload
from gesta.flows.slack.message import CHANNEL, DEFAULT, PLACE, WORKSPACE, Channel, Message
from gesta.tenants.config import TenantConfig
from gesta.tenants.flow_records import TenantRecords


def notices(*, is_declared: bool) -> Notices:
    """`is_declared`: the program itself has the workspace `default`."""

    def fault(channel: str, config: TenantConfig) -> str:
        if not PLACE.fullmatch(channel):
            found = getattr(config.find(CHANNEL, channel), "body", None)
            if not isinstance(found, Channel):
                return f"there is no {CHANNEL} {channel}"
            if found.disabled:
                return (
                    f"the {CHANNEL} {channel} is disabled:"
                    f" {found.disabled_reason or 'no reason given'}"
                )
            if found.workspace != DEFAULT:
                return (
                    f"the {CHANNEL} {channel} is not in the workspace {DEFAULT}, from which alerts"
                    " are sent"
                )
        return (
            ""
            if is_declared or config.find(WORKSPACE, DEFAULT) is not None
            else f"there is no {WORKSPACE} {DEFAULT}"
        )

    return Notices(_write, fault)


async def _write(channel: str, notice: Notice, _: TenantRecords) -> Payload:
    return Message(channel, notice.text)
