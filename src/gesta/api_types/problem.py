"""Errors as application/problem+json."""

from typing import Any

import msgspec


class ProblemRepresentation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """RFC 9457, with a `code` for programs and `errors` for forms."""

    type: str
    title: str
    status: int
    #: Stable, for programs.
    code: str
    #: For people.
    detail: str
    #: Field → error.
    errors: dict[str, str] = {}
    #: The request that the problem is about.
    request_id: str | None = None
    #: The flows that have a request with this id, where the id alone is ambiguous.
    flows: list[str] = []
    #: For a report that came too late: the current status, reason and number of attempts.
    now: dict[str, Any] = {}
