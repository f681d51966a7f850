"""The fake's webhooks: signed as Stripe signs them, one delivery at a time, so that a test chooses
order, delay and repeats.
"""

import hashlib
import hmac
from typing import Any

import msgspec

from gesta.outbound.http import HttpRequest


def signature(body: bytes, secret: str, at_seconds: int) -> str:
    """The header Stripe-Signature."""
    signed = f"{at_seconds}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={at_seconds},v1={digest}"


def webhook(event: dict[str, Any], url: str, secret: str, at_seconds: int) -> HttpRequest:
    """The request that delivers one event. A later delivery of the same event is signed anew."""
    body = msgspec.json.encode(event)
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Stripe-Signature": signature(body, secret, at_seconds),
        "User-Agent": "Stripe/1.0",
    }
    return HttpRequest("POST", url, headers, body)
