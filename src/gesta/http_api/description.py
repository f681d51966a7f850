"""GET /openapi.json and GET /docs: what the API is, for programs and for people.

Both are made from the table, and need no key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape

import msgspec

from gesta.flows.flow import Flow
from gesta.http_api.openapi import describe
from gesta.http_api.page import SERVER, page_of
from gesta.http_api.route import Answer, Call, Route

#: The page has its style in itself and nothing else: no script, no picture, no frame, nothing from
#: elsewhere.
CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HOST = re.compile(r"[0-9A-Za-z.\[\]:-]{1,255}")


class Description:
    """The description in both its forms, made once."""

    def __init__(self, routes: Sequence[Route], flows: Mapping[str, Flow]) -> None:
        self.document = describe(routes, flows)

    @cached_property
    def page(self) -> bytes:
        return page_of(self.document)

    def json(self, root: str = "") -> bytes:
        """`root`: where the API is mounted."""
        return msgspec.json.encode(
            self.document | {"servers": [{"url": root}]} if root else self.document
        )


async def openapi(call: Call) -> Answer:
    """The OpenAPI 3.1 description of the API, with the payloads of this process's flows."""
    return Answer(call.web.description.json(call.root))


async def docs(call: Call) -> Answer:
    """The same for people: a page without any script."""
    headers = {"Content-Security-Policy": CSP, "Referrer-Policy": "no-referrer"}
    page, host = call.web.description.page, call.header("host")
    if host is not None and _HOST.fullmatch(host):
        # The examples call the server that whoever reads them has reached.
        page = page.replace(
            SERVER.encode(), f"{call.scheme}://{host}{escape(call.root)}".encode(), 1
        )
    return Answer(page, headers=headers, media_type="text/html; charset=utf-8")


ROUTES = [
    Route(
        "GET",
        "/openapi.json",
        openapi,
        None,
        "What the API is, for programs",
        "about",
        gives="application/json",
    ),
    Route("GET", "/docs", docs, None, "What the API is, for people", "about", gives="text/html"),
]
