"""The call of an endpoint as it is stored: the arguments of the handler, and only the allowed
headers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gesta.domain.stored_job import EMPTY_ID, is_id
from gesta.errors import BadFlow
from gesta.flows.flow import Payload, Personal
from gesta.jobs.outcomes import JobFailed

#: The client's id of a job.
ID_HEADER = "x-async-request-id"
#: The largest call that is stored, in bytes.
CALL_BYTES_MAX = 256 * 1024
#: Never stored: a reader of the store could act as the caller.
SECRET_HEADERS = frozenset(
    {
        "authorization",
        "cookie",
        "proxy-authorization",
        "set-cookie",
        "x-api-key",
        "x-slack-signature",
    }
)


class EndpointCall(Payload, frozen=True):
    """The payload of an endpoint's flow. Each endpoint has a subclass."""

    #: The client's id of the job; None: the client gave none.
    id: str | None = None
    #: The handler's arguments by name, as JSON.
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    headers: dict[str, list[str | None]] = msgspec.field(default_factory=dict)
    route_params: dict[str, Any] = msgspec.field(default_factory=dict)
    query_params: list[tuple[str, list[str | None]]] = msgspec.field(default_factory=list)
    #: The body as it came, where the handler takes the request itself.
    body: str = ""


class PersonalCall(EndpointCall, frozen=True):
    """The payload of an endpoint that names a data subject: erasing that person erases the call and
    its result.
    """

    subject: str = ""
    arguments: Personal[dict[str, Any]] = msgspec.field(default_factory=dict)
    headers: Personal[dict[str, list[str | None]]] = msgspec.field(default_factory=dict)
    route_params: Personal[dict[str, Any]] = msgspec.field(default_factory=dict)
    query_params: Personal[list[tuple[str, list[str | None]]]] = msgspec.field(default_factory=list)
    body: Personal[str] = ""


class BadBody(JobFailed, ValueError):
    """The stored body is not JSON, however often it is read."""


class JobRequest:
    """What a handler that takes the request itself gets: the call as it was stored."""

    def __init__(self, call: EndpointCall) -> None:
        self._call = call
        self.path_params: Mapping[str, Any] = call.route_params
        self.headers: Mapping[str, str] = {
            name: values[0] or "" for name, values in call.headers.items() if values
        }
        self.query_params: Mapping[str, str] = {
            name: values[-1] or "" for name, values in call.query_params if values
        }

    async def body(self) -> bytes:
        return self._call.body.encode()

    async def json(self) -> Any:
        """Raises BadBody, a ValueError, which fails the job unless the handler catches it."""
        try:
            return msgspec.json.decode(self._call.body)
        except (ValueError, RecursionError):
            raise BadBody("BAD_ARGUMENTS", "The body of the call is not JSON") from None


def checked_headers(endpoint: str, allowed: Iterable[str]) -> frozenset[str]:
    """The names of headers that are stored, in lower case. Raises BadFlow for secrets."""
    names = frozenset(name.lower() for name in allowed)
    if secret := names & SECRET_HEADERS:
        raise BadFlow(endpoint, f"headers={min(secret)!r}: gesta never stores secrets")
    return names


def allowed_headers(
    headers: Iterable[tuple[str, str]], allowed: frozenset[str]
) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for name, value in headers:
        if name.lower() in allowed:
            found.setdefault(name.lower(), []).append(value)
    return found


def gathered(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str | None]]]:
    """Query parameters, in their order; a name that repeats has several values."""
    found: dict[str, list[str | None]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return list(found.items())


def job_id_of(text: str | None) -> str | None:
    """The client's id in lower case. Raises ValueError if it is not a job id."""
    if text is None:
        return None
    if not is_id(text.lower()) or text.lower() == EMPTY_ID:
        raise ValueError(f"{text[:64]!r} is not a job id")
    return text.lower()
