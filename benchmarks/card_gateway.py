"""A gateway that says yes in this process, so that a run measures gesta and no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.domain.money import Money
from gesta.flows.payment.descriptor import GatewayDescriptor
from gesta.flows.payment.gateway import (
    CallAnswer,
    CallNotFound,
    CallSucceeded,
    Connection,
    GatewayAccount,
    GatewayCall,
    Instruction,
    LedgerPage,
    LookUpAnswer,
)

TYPE = "bench"


class YesGateway:
    """Takes every call. It counts keys, so that a second effect would be seen."""

    type = TYPE

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._descriptor = GatewayDescriptor(
            type=TYPE,
            key_lifetime_seconds=86_400.0,
            replays="all",
            body_mismatch="error",
            look_up_by=("reference",),
            verbs=frozenset({"authorize", "sale", "capture", "void", "refund"}),
        )

    def descriptor(self, _: GatewayAccount) -> GatewayDescriptor:
        return self._descriptor

    def errors(self, _: GatewayAccount) -> Mapping[str, str]:
        return {}

    def render(self, instruction: Instruction, connection: Connection) -> GatewayCall:
        return GatewayCall(
            gateway=connection.code,
            type=TYPE,
            account=connection.fingerprint(),
            verb=instruction.verb,
            key=instruction.key,
            reference=instruction.reference,
            amount=instruction.amount,
            method="POST",
            url="https://bench.invalid/charges",
            body=msgspec.json.encode({"amount": instruction.amount, "source": instruction.source}),
            resend_seconds=82_800.0,
        )

    async def execute(self, call: GatewayCall, _: Connection) -> CallAnswer:
        self.keys.add(call.key)
        return CallSucceeded(call.key[-40:], call.amount or Money("0.00", "EUR"))

    async def look_up(self, *_: Any) -> LookUpAnswer:
        return CallNotFound()

    async def list(self, *_: Any) -> LedgerPage:
        return LedgerPage(())

    def verify(self, *_: Any) -> Any:
        raise AssertionError("no webhook is sent in a bench run")
