"""The fake's webhooks: signed as Stripe signs them, in any order, late and repeated."""

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from random import Random
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


def disorderly(events: Sequence[dict[str, Any]], chance: Random) -> Iterator[dict[str, Any]]:
    """The events in a random order; each comes once, twice or three times."""
    repeated = [event for event in events for _ in range(chance.choice((1, 1, 2, 3)))]
    chance.shuffle(repeated)
    yield from repeated
