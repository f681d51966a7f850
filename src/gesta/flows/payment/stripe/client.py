"""Stripe's client over the attempt's HTTP, with its guard, time limit and record of what was sent.

The client's retries are off: only the engine retries, and every attempt is an event. The journaled
bytes are sent, even where a newer version of the client would encode the call otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from gesta.errors import MissingExtra
from gesta.flows.payment.gateway import Connection, GatewayCall

if TYPE_CHECKING:
    from stripe import StripeClient

API_URL: Final = "https://api.stripe.com"
#: What may be sent of the headers that the client composes. The others describe this machine.
_SENT: Final = frozenset(
    {
        "authorization",
        "content-type",
        "idempotency-key",
        "stripe-account",
        "stripe-version",
        "user-agent",
    }
)


class TooLarge(Exception):
    """The answer is longer than the transport reads."""


@dataclass(frozen=True, slots=True)
class _Exchange:
    connection: Connection
    body: bytes | None


_EXCHANGE: Final[ContextVar[_Exchange]] = ContextVar("gesta_stripe_exchange")


def require_library() -> None:
    """Raises MissingExtra with the install command."""
    if find_spec("stripe") is None:
        raise MissingExtra("the gateway stripe", "stripe", "stripe")


@lru_cache(maxsize=64)
def _client_of(api_url: str) -> StripeClient:
    # Imported with the first call, because it takes half a second.
    import stripe

    # The client would write answers, with payment details, to a debug log, and read a file with an
    # id of this machine before each call.
    if (log := logging.getLogger("stripe")).level == logging.NOTSET:
        log.setLevel(logging.WARNING)
    stripe.enable_telemetry = False

    class AttemptHttp(stripe.HTTPClient):
        """Sends what the client composed by the HTTP of the current attempt."""

        name = "gesta"

        async def request_async(
            self, method: str, url: str, headers: Mapping[str, str], post_data: Any = None
        ) -> tuple[bytes, int, Mapping[str, str]]:
            exchange = _EXCHANGE.get()
            response = await exchange.connection.http.exchange(
                method.upper(),
                url,
                headers={name: text for name, text in headers.items() if name.lower() in _SENT},
                body=exchange.body,
                timeout_seconds=exchange.connection.timeout_seconds,
            )
            if not response.is_whole:
                raise TooLarge
            return response.body, response.status, response.headers

    # Each call brings the key of its account.
    return stripe.StripeClient(
        "none",
        base_addresses={"api": api_url},
        http_client=AttemptHttp(),
        max_network_retries=0,
    )


def base_url(connection: Connection) -> str:
    return connection.account.api_url.rstrip("/") or API_URL


async def send(call: GatewayCall, connection: Connection) -> tuple[dict[str, Any], bool]:
    """Send a journaled call. Returns the object and whether it was replayed for the key.

    Raises stripe.StripeError for an answer that is no success, and AttemptEnded for a missing one.
    """
    base, _, path = call.url.partition("/v1/")
    _EXCHANGE.set(_Exchange(connection, call.body))
    answer = await _client_of(base).raw_request_async(
        call.method.lower(),
        f"/v1/{path}",
        api_key=connection.api_key,
        idempotency_key=call.key,
        stripe_version=call.headers.get("stripe-version"),
        stripe_account=call.headers.get("stripe-account"),
    )
    return _object(answer.data), answer.headers.get("idempotent-replayed") == "true"


async def ask(
    connection: Connection, path: str, version: str, parameters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Read something. Raises as `send` does."""
    _EXCHANGE.set(_Exchange(connection, None))
    answer = await _client_of(base_url(connection)).raw_request_async(
        "get",
        path,
        api_key=connection.api_key,
        stripe_version=version,
        stripe_account=connection.account.options.get("stripe_account"),
        **(parameters or {}),
    )
    return _object(answer.data)


def _object(data: Any) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}
