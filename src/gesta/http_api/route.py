"""What a route is: one line of the table in app.py, from which the server, the OpenAPI description
and the tests are made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from gesta.api_types.keys import Scope
from gesta.api_types.structs import Asked
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

#: Of one body, if a route says nothing else: a payload of the largest size, and what stands around
#: it.
BODY_BYTES_MAX = 300 * 1024


class Nothing(Asked, frozen=True):
    """No parameters."""


class Answer(msgspec.Struct, frozen=True):
    """What a handler gives back. `body` is a Representation, bytes as they are, or None."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    media_type: str = JSON


@dataclass(frozen=True)
class Stream:
    """An answer without an end: parts as they come, until the caller goes away or the engine
    stops.
    """

    parts: AsyncIterator[bytes]
    media_type: str = "text/event-stream"


@dataclass(slots=True)
class Call:
    """One call, checked: whose it is, and what was asked, each of the type that its route names."""

    web: Web
    pipeline: Pipeline
    #: Whose key it was. A route without a scope is called by nobody in particular: see `OPEN`.
    grant: Grant
    params: Mapping[str, str]
    query: Any
    body: Any
    #: One value of each header, by its name in lower case.
    header: Callable[[str], str | None]
    #: Where the API is mounted, e.g. "/gesta".
    root: str
    #: The body as it came, for routes that verify a signature over it.
    raw: bytes
    #: Runs something that takes its time, and gives it up when the caller goes away.
    while_there: Callable[[Awaitable[Any]], Awaitable[Any]]
    #: The address of the other end, as far as it is known.
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
        """Who decides, for the record: the key, and the person it acts for where the header
        Gesta-Actor names one.
        """
        key, person = f"key:{self.grant.key_id}", self.header("gesta-actor")
        if self.web.grant is not None:
            return Actor(person or self.grant.name)
        return Actor(key) if person is None else Actor(person, (key,))


Handler = Callable[[Call], Awaitable[Answer | Stream]]
#: (engine, tenant, the parts of the path, the body as it came) → faults. What it raises is told
#: instead of them.
Also = Callable[["Engine", str, Mapping[str, str], dict[str, Any]], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True)
class Route:
    """A line of the table.

    `scope` is what a key must allow, "any": any key will do; None: no key is asked for.
    """

    method: Method
    path: str
    handler: Handler
    scope: Scope | Literal["any"] | None
    #: What OpenAPI and people read.
    summary: str
    tag: str
    query: type[Asked] = Nothing
    body: type[Asked] | None = None
    answer: type[Any] | None = None
    #: The status of a success, and others that a caller must expect beside those that every route
    #: has.
    status: int = 200
    problems: tuple[int, ...] = ()
    body_bytes_max: int = BODY_BYTES_MAX
    #: What the body is sent as. The handler reads anything but JSON itself, from `call.raw`.
    takes: str = JSON
    gives: str = JSON
    #: A body, or the lack of one, that can be tried as it is.
    example: Any = None
    #: Headers that the route looks at beside those that every route does: name → what it means.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Parameters that people put into the query and that do not belong there: name → where they do.
    misplaced: Mapping[str, str] = field(default_factory=dict)
    #: What is wrong with a body beyond its type, told with the rest where the type does not fit.
    also: Also | None = None
    #: What a body that is no JSON object should have been; without it, only that it is none.
    object_hint: str = ""
    #: Where nothing is chosen, everything of the tenant is meant: then it has to be said, if only
    #: by `{}`.
    is_broad: bool = False
    #: How much of a key's rate a call is; a batch is as many as it carries.
    weighs: Callable[[Any], int] | None = None

    @property
    def name(self) -> str:
        """The operation's id: what its handler is called."""
        return self.handler.__name__

    @property
    def needs_body(self) -> bool:
        """Whether nothing may not stand for `{}`.

        A body that the handler reads itself is never left out.
        """
        return (
            self.body is None or self.is_broad or any(one.required for one in fields_of(self.body))
        )


def item(call: Call, name: str) -> str:
    """A part of the path."""
    return call.params[name]
