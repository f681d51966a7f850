"""A gateway that says yes in this process, so that a run measures gesta and no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gesta.domain.money import Money
from gesta.flows.payment.descriptor import GatewayDescriptor
from gesta.flows.payment.gateway import (
    OTHER_ACCOUNT,
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
#: The same one each time: what it takes to make an answer is nothing of ours.
ANSWER = msgspec.json.encode(
    {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": 4990,
        "amount_received": 4990,
        "currency": "eur",
        "status": "succeeded",
        "latest_charge": "ch_1",
        "metadata": {"gesta": "default:payment.card:0198c0de:sale:1"},
    }
)


class Answer(msgspec.Struct):
    """What is read of an answer."""

    currency: str
    status: str
    latest_charge: str


read_answer = msgspec.json.Decoder(Answer).decode


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

    async def execute(self, call: GatewayCall, connection: Connection) -> CallAnswer:
        """What a real gateway does beside the exchange itself: compare the account, read the
        answer.
        """
        if call.account != connection.fingerprint():
            return OTHER_ACCOUNT
        self.keys.add(call.key)
        answer = read_answer(ANSWER)
        assert call.amount is not None
        assert answer.status == "succeeded"
        amount = Money(call.amount.amount, answer.currency.upper())
        return CallSucceeded(call.key[-40:], amount, answer.latest_charge)

    async def look_up(self, *_: Any) -> LookUpAnswer:
        return CallNotFound()

    async def list(self, *_: Any) -> LedgerPage:
        return LedgerPage(())

    def verify(self, *_: Any) -> Any:
        raise AssertionError("no webhook is sent in a bench run")
