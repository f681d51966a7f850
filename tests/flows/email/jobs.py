"""A job of seed 002 that is right in every respect, to be made wrong."""

from __future__ import annotations

from typing import Any

OUTBOX = "123e4567-e89b-12d3-a456-426614174000"
COMPANY = "789e4567-e89b-12d3-a456-426614174999"
HASH = "a3c7b8d9e0f1" + "0" * 52


def job(
    data: dict[str, Any] | None = None, opts: dict[str, Any] | None = None, **recipient: Any
) -> dict[str, Any]:
    """The seed's own example; a field given as ... is left out."""
    person = {
        "externalId": "CUST-12345",
        "cpfCnpjHash": HASH,
        "nome": "João da Silva",
        "email": "cliente@example.com",
    } | recipient
    fields: dict[str, Any] = {
        "outboxId": OUTBOX,
        "companyId": COMPANY,
        "requestId": "req-abc123",
        "to": "cliente@example.com",
        "subject": "Seu boleto está disponível",
        "htmlRef": OUTBOX,
        "recipient": without(person),
        "attempt": 1,
        "enqueuedAt": "2026-11-16T12:00:00.000Z",
    }
    options = {
        "jobId": fields["outboxId"],
        "ttl": 86_400_000,
        "priority": 5,
        "removeOnComplete": True,
        "removeOnFail": False,
    }
    return {"data": without(fields | (data or {})), "opts": without(options | (opts or {}))}


def without(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not ...}
