"""What goes wrong, as application/problem+json: a status, a stable code, a sentence, and every
field that is at fault.
"""

from collections.abc import Mapping
from typing import Any

from gesta import errors as e
from gesta.api_types.problem import ProblemRepresentation
from gesta.http_api.route import Answer

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1

TITLES = {
    400: "The request cannot be read",
    401: "A key is needed",
    403: "The key does not allow it",
    404: "There is no such thing",
    405: "The method does not fit",
    408: "The request came too slowly",
    409: "It does not fit what is there",
    410: "It is gone",
    412: "It was changed meanwhile",
    413: "The body is too large",
    415: "The body is of another kind",
    422: "The request is not valid",
    429: "Too many requests",
    500: "A fault in gesta",
    503: "Not possible right now",
    507: "No room left",
}


class Problem(Exception):
    """An answer that is no success."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Mapping[str, str] | None = None,
        request_id: str | None = None,
        results: list[Any] | None = None,
        now: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})
        self.representation = ProblemRepresentation(
            f"urn:gesta:problem:{code}",
            TITLES[status],
            status,
            code,
            detail,
            dict(errors or {}),
            request_id,
            dict(now or {}),
            results or [],
        )

    def answer(self) -> Answer:
        return Answer(self.representation, self.status, self.headers, MEDIA_TYPE)


def invalid(errors: Mapping[str, str]) -> Problem:
    """Something that was asked does not fit: every fault at once."""
    told = "; ".join(f"{name}: {fault}" for name, fault in errors.items())
    return Problem(422, "invalid", told, errors=errors)


def problem_of(error: e.GestaError) -> Problem | None:
    """What a caller is told of an error that gesta raised on purpose; None: it is our fault, and
    the log has it.
    """
    match error:
        case e.InvalidRequest() | e.BadConfig() | e.BadScope():
            return invalid(error.fields)
        case e.UnknownFlow():
            return invalid({"flow": str(error)})
        case e.BadCursor():
            return Problem(400, "bad_cursor", str(error))
        case e.BadInput():
            return Problem(422, "invalid", str(error))
        case e.VersionConflict():
            return Problem(
                412,
                "changed",
                str(error),
                headers={"ETag": f'"{error.version}"'} if error.version else None,
            )
        case e.Conflict():
            return Problem(409, "conflict", str(error), request_id=error.request_id)
        case e.NotFound():
            return Problem(404, "not_found", str(error))
        case e.Refused():
            return Problem(409, error.code, str(error), request_id=error.request_id)
        case e.LeaseLost():
            now = {
                "status": error.state.status,
                "reason": error.state.reason,
                "attempts": error.state.attempts,
            }
            return Problem(409, "lease_lost", str(error), request_id=error.request_id, now=now)
        case e.Erased():
            return Problem(410, "subject_erased", str(error), request_id=error.request_id)
        case e.Overloaded():
            return Problem(503, "try_later", str(error), headers=_retry(error.retry_after_seconds))
        case e.StoreFull():
            return Problem(
                507,
                "store_full",
                "no room is left in the store; nothing was written",
                headers=_retry(30),
            )
        case e.RendererDown():
            return Problem(503, "renderer_unavailable", str(error), headers=_retry(RETRY_SECONDS))
        case e.StoreError():
            # Its text names files and hosts, which are nobody's business here.
            text = (
                "the store cannot be used right now; ask again, with the same key where something"
                " is to be done"
            )
            return Problem(503, "store_unavailable", text, headers=_retry(RETRY_SECONDS))
        case _:
            return None


def _retry(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, round(seconds)))}
