"""A source of inbound events: `verify` works on raw bytes, `read` parses what was verified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from gesta.domain.commands import Command
from gesta.domain.event_message import EventMessage
from gesta.errors import GestaError
from gesta.flows.flow import Payload

if TYPE_CHECKING:
    from gesta.tenants.config import TenantConfig


class Posted(msgspec.Struct, frozen=True):
    """One HTTP request, not verified yet."""

    tenant: str
    #: The parts of the path behind the source and the tenant.
    parts: tuple[str, ...]
    #: One value of each header, by its name in lower case.
    header: Callable[[str], str | None]
    body: bytes
    #: The id that our server gave to the request.
    request_id: str
    #: When it arrived, epoch milliseconds.
    received_ms: int

    def __repr__(self) -> str:
        return f"Posted({self.tenant}, {len(self.body)} bytes)"


class Untrusted(Exception):
    """The request is not from the source. `reason` is one of a closed set, for the metrics; the
    caller always gets the same answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Malformed(GestaError):
    """A verified request whose body cannot be read. Nothing of it is stored."""


class Challenge(msgspec.Struct, frozen=True):
    """The source asks whether this address is ours. Nothing is stored."""

    answer: Mapping[str, str]


class Verdict(msgspec.Struct, frozen=True):
    """Why an event leads to nothing, and what is recorded about it."""

    reason: str
    detail: str = ""
    is_recorded: bool = True


class Action(msgspec.Struct, frozen=True):
    """What an event leads to: a request of a flow."""

    flow: str
    #: The type of the flow's payload → the payload. Raises InvalidRequest.
    payload: Callable[[type[Payload]], Payload]
    #: The same for every event that must lead to this request only once.
    key: str
    #: Whether an event with the same id and another key leads to nothing. Not needed where the key
    #: is made of the id.
    claims_event: bool = False
    #: Of the request: 1 to 10.
    priority: int = 5


class Note(msgspec.Struct, frozen=True):
    """What an event says about a request that exists: a command to it. The command recognises a
    repeated event.
    """

    flow: str
    request_id: str
    command: Command


class Received(msgspec.Struct, frozen=True):
    """A verified event: what it says, and what follows."""

    #: The same for every delivery of the event.
    id: str
    follows: Action | Note | Verdict
    #: What is recorded of an ignored event: ids and codes, never content.
    facts: Mapping[str, str] = {}
    #: The event in the form of the boundary queue, where the source has one.
    message: EventMessage | None = None


#: Raises Untrusted. What it returns is given to `read`.
Verify = Callable[[Posted, "TenantConfig"], Awaitable[Any]]
#: Raises Malformed, or Untrusted where the event names another owner than the signature.
Read = Callable[[Posted, Any, "TenantConfig"], Challenge | Sequence[Received]]


@dataclass(frozen=True)
class Source:
    """`name` is its name in the path."""

    name: str
    verify: Verify
    read: Read
    #: What follows from a message of the boundary queue, for sources that have one. Raises
    #: BadMessage where no repetition helps.
    follow: Callable[[EventMessage, TenantConfig], Received] | None = None
    #: An event that its flow refuses is recorded as ignored instead of answered with an error: the
    #: sender would only repeat it.
    records_invalid: bool = False
