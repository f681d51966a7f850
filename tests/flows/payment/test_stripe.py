"""Stripe keeps the gateway contract, and means what Stripe's errors mean."""

from __future__ import annotations

import pytest

from gesta.testing.contracts.gateway import GatewayContract
from tests.flows.payment.stripe_harness import StripeHarness


class TestStripe(GatewayContract):
    @pytest.fixture
    def harness(self, runtime):
        return StripeHarness(runtime)
