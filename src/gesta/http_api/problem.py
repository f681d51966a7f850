"""Errors as application/problem+json: a status, a stable code, a text, and every field that is
wrong.
"""

from collections.abc import Mapping
from typing import Any

from gesta import errors as e
from gesta.api_types.problem import ProblemRepresentation
from gesta.http_api.route import Answer

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1.0
STORE_FULL_RETRY_SECONDS = 30.0

TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    410: "Gone",
    412: "Precondition failed",
    413: "Content too large",
    415: "Unsupported media type",
    422: "Validation failed",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
    507: "Insufficient storage",
}


class Problem(Exception):
    """An answer that is not a success."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        """`members`: further members of the problem, see ProblemRepresentation."""
        super().__init__(detail)
        self.status, self.headers = status, headers or {}
        self.representation = ProblemRepresentation(
            f"urn:gesta:problem:{code}", TITLES[status], status, code, detail, **members
        )

    def answer(self) -> Answer:
        return Answer(self.representation, self.status, self.headers, MEDIA_TYPE)


def invalid(errors: Mapping[str, str]) -> Problem:
    """Reports all field errors together."""
    detail = "; ".join(f"{name}: {error}" for name, error in errors.items())
    return Problem(422, "invalid", detail, errors=dict(errors))


def problem_of(error: e.GestaError) -> Problem | None:
    """The answer for an error of gesta; None for an unexpected one, which is logged and answered as
    500.
    """
    match error:
        case e.InvalidRequest() | e.BadConfig() | e.BadScope():
            return invalid(error.fields)
        case e.UnknownFlow():
            return invalid({"flow": str(error)})
        case e.BadCursor():
            return Problem(400, "bad_cursor", str(error))
        case e.AmbiguousId():
            detail = f"{error}: ?flow={error.flows[0]}"
            return Problem(
                409, "ambiguous_id", detail, request_id=error.request_id, flows=error.flows
            )
        case e.BadInput():
            return Problem(422, "invalid", str(error))
        case e.VersionConflict():
            return Problem(
                412,
                "version_conflict",
                str(error),
                headers={"ETag": f'"{error.version}"'} if error.version else None,
            )
        case e.Conflict():
            return Problem(409, "conflict", str(error), request_id=error.request_id)
        case e.NotFound():
            return Problem(404, "not_found", str(error))
        case e.Refused():
            return Problem(409, error.code, str(error), request_id=error.request_id)
        case e.BulkFinished():
            return Problem(409, "bulk_finished", str(error))
        case e.LeaseLost():
            now = {
                "status": error.state.status,
                "reason": error.state.reason,
                "attemptCount": error.state.attempts,
            }
            return Problem(409, "lease_lost", str(error), request_id=error.request_id, now=now)
        case e.Erased():
            return Problem(410, "subject_erased", str(error), request_id=error.request_id)
        case e.Overloaded() | e.RendererDown() | e.ListingFailed() | e.StoreError():
            return _unavailable(error)
        case _:
            return None


def _unavailable(
    error: e.Overloaded | e.RendererDown | e.ListingFailed | e.StoreError,
) -> Problem:
    """The caller may repeat the call after `Retry-After`."""
    match error:
        case e.Overloaded():
            status, code, text, seconds = 503, "overloaded", str(error), error.retry_after_seconds
        case e.RendererDown():
            status, code, text, seconds = 503, "renderer_unavailable", str(error), RETRY_SECONDS
        case e.ListingFailed():
            status, code, text = 503, "ledger_unavailable", str(error)
            seconds = error.after_seconds or RETRY_SECONDS
        case e.StoreFull():
            text = "no room is left in the store; nothing was written"
            status, code, seconds = 507, "store_full", STORE_FULL_RETRY_SECONDS
        case _:
            # The text of the error names files and hosts; a caller must not see them.
            text = "the store is unavailable; repeat the call, with the same key for a submit"
            status, code, seconds = 503, "store_unavailable", RETRY_SECONDS
    return Problem(status, code, text, headers={"Retry-After": str(max(1, round(seconds)))})
