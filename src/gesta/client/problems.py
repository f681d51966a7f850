"""What a server answers when something went wrong, as the error that an engine in this process
would have raised.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gesta import errors as e
from gesta.api_types.problem import ProblemRepresentation

E = TypeVar("E", bound=e.GestaError)

#: Nothing was done, whatever was asked: the same call may be made again.
NOTHING_DONE = frozenset(
    {
        "rate_limited",
        "too_slow",
        "not_running",
        "overloaded",
        "too_many_connections",
        "too_many_streams",
        "too_many_bulk_runs",
        "too_many_previews",
    }
)


def read_problem(status: int, raw: bytes) -> ProblemRepresentation:
    """The problem that was answered; one made up where the answer is none, as a proxy's may be."""
    try:
        return msgspec.json.decode(raw, type=ProblemRepresentation)
    except msgspec.DecodeError:
        return ProblemRepresentation(
            "about:blank",
            f"HTTP {status}",
            status,
            f"http_{status}",
            f"the server answered {status} and nothing that says why",
        )


def error_of(problem: ProblemRepresentation, retry_after_seconds: float | None) -> e.GestaError:
    """The error of this kind, with the server's own words."""
    told = problem.detail
    match problem.status:
        case 401 | 403:
            return _made(e.Forbidden, told)
        case 404:
            return _made(e.NotFound, told)
        case 409 if problem.code == "ambiguous_id":
            return _made(
                e.AmbiguousId, told, request_id=problem.request_id or "", flows=problem.flows
            )
        case 409 if problem.code == "conflict":
            return _made(e.Conflict, told, key="", request_id=problem.request_id or "")
        case 409:
            return _made(e.Refused, told, request_id=problem.request_id or "", code=problem.code)
        case 410:
            return _made(e.Erased, told, request_id=problem.request_id or "")
        case 412:
            return _made(e.VersionConflict, told, version=0)
        case 422 if problem.errors:
            return _made(e.InvalidRequest, told, flow="", fields=_fields(problem.errors))
        case 400 if problem.code == "bad_cursor":
            return _made(e.BadCursor, told)
        case 507:
            return _made(e.StoreFull, told)
        case 429:
            return _made(e.Overloaded, told, retry_after_seconds=retry_after_seconds or 1.0)
        case 503 if problem.code in NOTHING_DONE:
            return _made(e.Overloaded, told, retry_after_seconds=retry_after_seconds or 1.0)
        case status if status >= 500:
            return _made(e.Unreachable, told, code=problem.code)
        case _:
            return _made(e.BadInput, told)


def _fields(errors: Mapping[str, str]) -> dict[str, str]:
    """Faults of a payload under the names that its type has."""
    return {name.removeprefix("payload."): fault for name, fault in errors.items()}


def _made(kind: type[E], text: str, **values: Any) -> E:
    """An error of this kind with a text that was written elsewhere, by the same rules."""
    error = kind.__new__(kind, text)
    for name, value in values.items():
        setattr(error, name, value)
    return error
