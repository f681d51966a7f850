"""Stripe under the gateway contract, on the sandbox's fake of Stripe."""

from __future__ import annotations

import msgspec

from gesta.flows.payment.gateway import Delivery, Gateway, GatewayAccount
from gesta.flows.payment.stripe import StripeGateway
from gesta.runtime.clock import Runtime
from gesta.sandbox import Sandbox, SandboxTransport
from gesta.testing.contracts.gateway import lowered

_VERBS = {"cancel": "void"}


class StripeHarness:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.sandbox = runtime, Sandbox()
        self.fake = self.sandbox.stripe
        self.gateway: Gateway = StripeGateway()
        self.transport = SandboxTransport(runtime, self.sandbox)
        self.account = GatewayAccount("stripe", "acct_1", "")
        self.api_key, self.webhook_secret = "sk_test_1", "whsec_of_the_endpoint"
        self.source, self.declined_source = "pm_card_visa", "pm_card_chargeDeclined"

    def movements(self) -> list[str]:
        return [_VERBS.get(one.type, one.type) for one in self.fake.effects]

    def lose_next(self) -> None:
        self.fake.next(drop=True)

    def fail_next(self, status: int, retry_after: int | None = None) -> None:
        self.fake.next(status=status, retry_after=retry_after)

    def refuse(self, api_key: str) -> None:
        self.fake.on(api_key, status=401)

    def wrong_amount(self, body: bytes) -> bytes:
        answer = msgspec.json.decode(body)
        return msgspec.json.encode(answer | {"amount": 1, "amount_received": 1})

    def webhook(self) -> Delivery:
        request = self.fake.webhook("https://shop.example/hook", self.webhook_secret)
        return Delivery(lowered(request.headers), request.body or b"")
