"""openapi: what the API of this process's flows is. Needs no store."""

from __future__ import annotations

from gesta.cli.invocation import Invocation
from gesta.cli.output import print_json


def openapi(call: Invocation) -> None:
    """Print the OpenAPI 3.1 description of the HTTP API, with the payloads of this process's
    flows.
    """
    from gesta.cli.flows import flows_of
    from gesta.http_api.app import ROUTES
    from gesta.http_api.openapi import describe

    print_json(describe(ROUTES, {flow.name: flow for flow in flows_of(call.settings)}))
