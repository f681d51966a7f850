"""Whose events these are, for the fence of a tenant."""

import msgspec


class _Owned(msgspec.Struct):
    """The part of an event's metadata that names its tenant."""

    tenant: str = ""


def tenant_of(meta: bytes) -> str:
    try:
        return msgspec.json.decode(meta, type=_Owned).tenant
    except msgspec.DecodeError:
        return ""
