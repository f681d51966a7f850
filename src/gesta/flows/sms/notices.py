"""What the engine itself has to say, as a text to a number."""

from __future__ import annotations

from gesta.flows.flow import Notice, Notices, Payload
from gesta.flows.sms.message import (
    ACCOUNT,
    BODY_LENGTH_MAX,
    DEFAULT,
    NOT_A_NUMBER,
    Account,
    Message,
    e164,
)
from gesta.tenants.config import TenantConfig
from gesta.tenants.flow_records import TenantRecords


def notices(declared: Account | None) -> Notices:
    def fault(number: str, config: TenantConfig) -> str:
        account = getattr(config.find(ACCOUNT, DEFAULT), "body", declared)
        if not isinstance(account, Account):
            return f"there is no {ACCOUNT} {DEFAULT}"
        return (
            "" if e164(number, account.default_region) is not None else f"the number {NOT_A_NUMBER}"
        )

    return Notices(_write, fault)


async def _write(number: str, notice: Notice, _: TenantRecords) -> Payload:
    return Message(number, notice.text[:BODY_LENGTH_MAX])
