"""/v1/erase: what is known about a person becomes unreadable for good, in requests, histories and
backups alike.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gesta.api_types.admin import ErasedRepresentation
from gesta.api_types.structs import Asked
from gesta.http_api.route import Answer, Call, Route


class Erase(Asked, frozen=True):
    """`subject`: the text that stands in a personal field, letter by letter, or what a payload's
    `subject` said.
    """

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


async def erase(call: Call) -> Answer:
    """Destroy the keys that seal what payloads tell about a person.

    It cannot be undone; it is safe to repeat.
    """
    return Answer(
        ErasedRepresentation(
            await call.engine.erase(call.body.subject, tenant=call.tenant, actor=call.actor)
        )
    )


ROUTES = [
    Route(
        "POST",
        "/v1/erase",
        erase,
        "admin",
        "Erase a person",
        "people",
        body=Erase,
        answer=ErasedRepresentation,
        example={"subject": "ada@example.org"},
    )
]
