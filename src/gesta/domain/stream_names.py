"""Every name under which something is stored, built here and nowhere else.

Names are built, never parsed: S0-18.
"""

#: Whose config concerns every tenant. No tenant can be called so.
INSTALLATION = "_gesta"


def request_stream(flow: str, tenant: str, request_id: str) -> str:
    """The stream of one request."""
    return f"{flow}.request-{tenant}-{request_id}"


def config_stream(tenant: str) -> str:
    """The one stream that holds all config of a tenant."""
    return f"config-{tenant}"


def checkpoint_of(subscription: str) -> str:
    """The checkpoint of a subscription, and the lease of the process that plays it."""
    return f"subscription/{subscription}"
