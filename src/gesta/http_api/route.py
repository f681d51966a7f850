"""A route: one entry of the table in app.py. The server, the OpenAPI description and tests are
built from it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from gesta.api_types.keys import Scope
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.domain.events import Actor
from gesta.flows.validation import fields_of
from gesta.tenants.api_keys import Grant

if TYPE_CHECKING:
    from gesta.engine.engine import Engine
    from gesta.engine.pipeline import Pipeline
    from gesta.http_api.app import Web

Method = Literal["GET", "POST", "PUT", "DELETE"]
Receive = Callable[[], Awaitable[Any]]
JSON = "application/json"

#: The maximum body of a route: the largest payload and what surrounds it.
BODY_BYTES_MAX = 300 * 1024


class Paging(Asked, frozen=True):
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


class Nothing(Asked, frozen=True):
    """No parameters."""


class Answer(msgspec.Struct, frozen=True):
    """The result of a handler. `body` is a Representation, raw bytes or None."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    media_type: str = JSON


@dataclass(frozen=True)
class Stream:
    """A long answer: parts are sent until the caller disconnects or the engine stops."""

    parts: AsyncIterator[bytes]
    media_type: str = "text/event-stream"


@dataclass(slots=True)
class Call:
    """One call with its checked parts, each of the type that the route names."""

    web: Web
    pipeline: Pipeline
    #: The grant of the key; `OPEN` on routes without a scope.
    grant: Grant
    params: Mapping[str, str]
    query: Any
    body: Any
    #: The value of a header, by its name in lower case.
    header: Callable[[str], str | None]
    #: Where the API is mounted, e.g. "/gesta".
    root: str
    #: The body as received, for routes that verify a signature over it.
    raw: bytes
    #: Awaits something and cancels it when the caller disconnects.
    while_there: Callable[[Awaitable[Any]], Awaitable[Any]]
    #: The address of the peer, as far as it is known.
    peer: str
    #: http or https, as far as the server knows.
    scheme: str

    @property
    def engine(self) -> Engine:
        return self.web.engine

    @property
    def tenant(self) -> str:
        return self.grant.tenant

    @property
    def actor(self) -> Actor:
        """The actor for the record: the key, and the person that the header Gesta-Actor names."""
        key, person = f"key:{self.grant.key_id}", self.header("gesta-actor")
        if self.web.grant is not None:
            return Actor(person or self.grant.name)
        return Actor(key) if person is None else Actor(person, (key,))


Handler = Callable[[Call], Awaitable[Answer | Stream]]
#: (engine, tenant, path parameters, decoded body) → field errors. What it raises is answered
#: instead.
Also = Callable[["Engine", str, Mapping[str, str], dict[str, Any]], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True)
class Route:
    """`scope` is the scope that a key needs; "any": any key; None: no key."""

    method: Method
    path: str
    handler: Handler
    scope: Scope | Literal["any"] | None
    #: For OpenAPI.
    summary: str
    tag: str
    query: type[Asked] = Nothing
    body: type[Asked] | None = None
    answer: type[Any] | None = None
    #: The status of a success, and statuses in addition to those of every route.
    status: int = 200
    problems: tuple[int, ...] = ()
    body_bytes_max: int = BODY_BYTES_MAX
    #: The content type of the body. The handler reads any other than JSON from `call.raw`.
    takes: str = JSON
    gives: str = JSON
    #: An example body that works unchanged.
    example: Any = None
    #: Headers that the route reads in addition to those of every route: name → meaning.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Parameters that callers put into the query by mistake: name → where they belong.
    misplaced: Mapping[str, str] = field(default_factory=dict)
    #: Errors of a body beyond its type, reported together with those of the type.
    also: Also | None = None
    #: What to send, for a body that is not a JSON object.
    object_hint: str = ""
    #: What a caller without a key can do, if that is not to create one.
    without_key: str = ""
    #: Without a choice the call affects the whole tenant; then a body is required, at least `{}`.
    is_broad: bool = False
    #: How much of a key's rate a call uses; a batch uses one for each request.
    weighs: Callable[[Any], int] | None = None

    @property
    def name(self) -> str:
        """The operation id: the name of the handler."""
        return self.handler.__name__

    @property
    def needs_body(self) -> bool:
        """Whether a body must be sent. A body that the handler reads itself always is."""
        return (
            self.body is None or self.is_broad or any(one.required for one in fields_of(self.body))
        )
