"""Names of streams and checkpoints. They are built here and never parsed (S0-18)."""

import re

from gesta.domain.lifecycles import lifecycle_of

#: Matches the whole name of every stream that is built here. An event store that gesta shares with
#: other programs filters its log by it.
OURS = r"(config|[^-$]+\.(request|transaction|run))-.+"
#: The owner of config that applies to every tenant. No tenant can have this name.
INSTALLATION = "_gesta"


def is_ours(stream: str) -> bool:
    return re.fullmatch(OURS, stream) is not None


def request_stream(flow: str, tenant: str, request_id: str) -> str:
    return f"{flow}.{lifecycle_of(flow).stream}-{tenant}-{request_id}"


def config_stream(tenant: str) -> str:
    """The one stream with all config of a tenant."""
    return f"config-{tenant}"


def reconciliation_stream(gateway_type: str, tenant: str, run: str) -> str:
    """The reports of one window of an account at a gateway."""
    return f"reconciliation.{gateway_type}.run-{tenant}-{run}"


def checkpoint_of(subscription: str) -> str:
    """The name of a subscription's checkpoint, and of the lease of the process that runs it."""
    return f"subscription/{subscription}"
