"""Slow endpoints in FastAPI: those of Starlette, and what the OpenAPI description says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi.encoders import jsonable_encoder
from pydantic import TypeAdapter

from gesta.api_types.problem import ProblemRepresentation
from gesta.jobs.representation import JobRepresentation
from gesta.jobs.starlette import Endpoints as _Endpoints
from gesta.jobs.values import is_of_framework, mentions

__all__ = ["Endpoints"]


class Endpoints(_Endpoints):
    by_pydantic = True

    def encoder_of(self, returns: Any) -> Callable[[Any], bytes]:
        """As FastAPI writes an answer: only what the return annotation has, under its aliases."""
        if returns in (Any, None, type(None)) or mentions(returns, is_of_framework):
            return lambda value: msgspec.json.encode(jsonable_encoder(value))
        adapter: TypeAdapter[Any] = TypeAdapter(returns)

        def encode(value: Any) -> bytes:
            found = adapter.validate_python(value, from_attributes=True)
            return adapter.dump_json(found, by_alias=True)

        return encode

    @property
    def responses(self) -> dict[int | str, dict[str, Any]]:
        """For `responses=` of a route: the job, and the problems."""
        (job, problem), parts = msgspec.json.schema_components(
            [JobRepresentation, ProblemRepresentation], ref_template="#/components/schemas/{name}"
        )
        del job, problem
        job_schema = {**parts["JobRepresentation"]}
        job_schema["properties"] = {
            **job_schema["properties"],
            "error": {"anyOf": [parts["JobError"], {"type": "null"}]},
            "result": {},
        }
        problems = {"application/problem+json": {"schema": parts["ProblemRepresentation"]}}
        return {
            202: {
                "description": "Accepted: the job, and where to ask for it",
                "content": {"application/json": {"schema": job_schema}},
                "headers": {"Location": {"schema": {"type": "string"}}},
            },
            400: {
                "description": "Bad request; FastAPI itself answers if the body is not JSON",
                "content": {**problems, "application/json": {"schema": {"type": "object"}}},
            },
            **{
                status: {"description": text, "content": problems}
                for status, text in (
                    (409, "The id was used for another call"),
                    (413, "Content too large"),
                    (500, "A function of the program failed"),
                    (503, "Service unavailable"),
                )
            },
        }
