"""Names of streams and checkpoints. They are built here and never parsed (S0-18)."""

from gesta.domain.lifecycles import lifecycle_of

#: The owner of config that applies to every tenant. No tenant can have this name.
INSTALLATION = "_gesta"


def request_stream(flow: str, tenant: str, request_id: str) -> str:
    return f"{flow}.{lifecycle_of(flow).stream}-{tenant}-{request_id}"


def config_stream(tenant: str) -> str:
    """The one stream with all config of a tenant."""
    return f"config-{tenant}"


def checkpoint_of(subscription: str) -> str:
    """The name of a subscription's checkpoint, and of the lease of the process that runs it."""
    return f"subscription/{subscription}"
