"""Answers of endpoints and their jobs, without a framework."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from gesta import errors as e
from gesta.api_types.problem import ProblemRepresentation

JSON, PROBLEM = "application/json", "application/problem+json"
A = TypeVar("A")
T = TypeVar("T")
_log = logging.getLogger("gesta.jobs")
_TITLES = {
    400: "Bad request",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Content too large",
    500: "Internal server error",
    503: "Service unavailable",
}


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class JobProblem(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code = status, code

    def answer(self) -> Answer:
        problem = ProblemRepresentation(
            f"urn:gesta:problem:{self.code}",
            _TITLES[self.status],
            self.status,
            self.code,
            str(self),
        )
        headers = {"Retry-After": "1"} if self.status == 503 else {}
        return Answer(self.status, msgspec.json.encode(problem), PROBLEM, headers)


def of_program(what: str, function: Callable[[A], T], argument: A) -> T:
    """The result of a function of the program. Its errors are logged and hidden from the caller:
    raises JobProblem.
    """
    try:
        return function(argument)
    except JobProblem:
        raise
    except Exception:  # noqa: BLE001 -- the program's function
        _log.exception("%s failed; the call is answered with 500, and nothing is stored", what)
        raise JobProblem(500, "internal_error", "The server failed to read the call") from None


def problem_of(error: JobProblem | e.GestaError) -> JobProblem:
    """The answer to an error of gesta. Raises one that the caller must not see."""
    match error:
        case JobProblem():
            return error
        case e.Conflict():
            return JobProblem(409, "conflict", "This job id was used for another call")
        case e.InvalidRequest():
            return JobProblem(400, "invalid_request", str(error))
        case e.NotFound():
            return JobProblem(404, "not_found", "There is no such job")
        case e.Refused(code="in_doubt"):
            text = "The outcome of the handler is unknown; a person has to resolve the job"
            return JobProblem(409, "unknown_outcome", text)
        case e.Refused():
            return JobProblem(409, "refused", "The job has ended")
        case e.StoreError() | e.Overloaded():
            return JobProblem(503, "unavailable", "The job store cannot be reached; try again")
        case _:
            raise error
