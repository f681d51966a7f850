"""Which credential a stored request uses, and what programs declare for credentials themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gesta.flows.flow import Flow, Payload
from gesta.flows.personal_fields import decode_object
from gesta.security.field_encryption import MARK
from gesta.security.keyed_digests import KeyedDigests
from gesta.tenants.pauses import NOT_SET


def credential_of(flow: Flow | None, payload: bytes) -> str | None:
    """`kind/code` of the config that a request uses, as its flow tells; None where it uses none."""
    if flow is None or flow.credential is None:
        return None
    try:
        told: object = flow.credential(
            _legible(flow.payload, payload)
            if MARK in payload
            else msgspec.json.decode(payload, type=flow.payload)
        )
        return told if isinstance(told, str) else None
    except Exception:  # noqa: BLE001 -- a program's own function, and a payload that may fit no longer: the attempt will say what is wrong
        return None


def _legible(kind: type[Payload], payload: bytes) -> Payload:
    """The payload with whatever is sealed in it left as it is: a credential is nobody's personal
    data, and no key is asked for.
    """
    parts = decode_object(payload)
    fields = {}
    for field in msgspec.structs.fields(kind):
        raw = parts.get(field.encode_name)
        if raw is not None:
            # Constructors do not look at types, so that a sealed field may stand where another
            # belongs.
            fields[field.name] = msgspec.json.decode(
                raw, type=msgspec.Raw if MARK in bytes(raw) else field.type
            )
    return kind(**fields)


def declared_digests(
    flows: Iterable[Flow], reference: Callable[[str], str], identity: KeyedDigests
) -> dict[str, str]:
    """Credential → digest of what these flows declare for it; NOT_SET for what is not set in this
    process.
    """
    digests: dict[str, str] = {}
    for flow in flows:
        for credential, texts in flow.declared.items():
            try:
                digests[credential] = identity.secret([reference(text) for text in texts])
            except KeyError:
                digests[credential] = NOT_SET
    return digests
