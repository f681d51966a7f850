"""Turns a problem that the server answered into the error that an engine would have raised."""

from collections.abc import Mapping

import msgspec

from gesta import errors as e
from gesta.api_types.problem import ProblemRepresentation

#: Codes of calls that had no effect; they may be repeated.
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


def read_problem(status: int, raw: bytes, server: str) -> ProblemRepresentation:
    """The problem in an answer. An answer without one, e.g. of a proxy, gives one by its status."""
    try:
        return msgspec.json.decode(raw, type=ProblemRepresentation)
    except msgspec.DecodeError:
        return ProblemRepresentation(
            "about:blank",
            f"HTTP {status}",
            status,
            f"http_{status}",
            f"{server} answered {status}, but not as gesta does; check the address, and any proxy"
            " in between",
        )


def error_of(problem: ProblemRepresentation, retry_after_seconds: float | None) -> e.GestaError:
    """The error that fits, with the text of the server."""
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status)
    if problem.status == 422 and problem.errors:
        kind = e.InvalidRequest
    if problem.status == 503 and problem.code in NOTHING_DONE:
        kind = e.Overloaded
    if kind is None:
        kind = e.Unreachable if problem.status >= 500 else e.BadInput
    error = kind.__new__(kind, problem.detail)
    # The constructors make texts of their own; these are the attributes that they set.
    vars(error).update(
        code=problem.code,
        request_id=problem.request_id or "",
        flows=problem.flows,
        fields={name.removeprefix("payload."): text for name, text in problem.errors.items()},
        flow="",
        key="",
        version=0,
        retry_after_seconds=retry_after_seconds or 1.0,
    )
    return error


_BY_STATUS: Mapping[int, type[e.GestaError]] = {
    401: e.Forbidden,
    403: e.Forbidden,
    404: e.NotFound,
    409: e.Refused,
    410: e.Erased,
    412: e.VersionConflict,
    429: e.Overloaded,
    507: e.StoreFull,
}
_BY_CODE: Mapping[str, type[e.GestaError]] = {
    # Not gesta: this says nothing about a request.
    "http_404": e.Unreachable,
    "ambiguous_id": e.AmbiguousId,
    "bad_cursor": e.BadCursor,
    "bulk_finished": e.BulkFinished,
    "conflict": e.Conflict,
    "in_doubt": e.InDoubt,
    "ledger_unavailable": e.ListingFailed,
}
