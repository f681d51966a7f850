"""The OpenAPI 3.1 description of the API, made from the table of routes and the flows of the
process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, get_args

from gesta.api_types.keys import Scope
from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.requests import ACTOR, Submit, Submitted
from gesta.domain.ids import KEY_LENGTH_MAX, REQUEST_ID, TENANT
from gesta.flows.flow import Flow
from gesta.http_api.problem import MEDIA_TYPE, TITLES
from gesta.http_api.requests import Batch
from gesta.http_api.route import JSON, Nothing, Route
from gesta.http_api.schemas import (
    FLOW_NAME,
    PLACE,
    Schema,
    Schemas,
    plain,
    submit_example,
    without_null,
)

#: What a part of a path is called → what it can be. What is not here is any text without a slash.
PATH_PARTS: dict[str, Schema] = {
    "flow": {"$ref": PLACE + FLOW_NAME},
    "id": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"},
    "tenant": {"type": "string", "pattern": f"^{TENANT.pattern}$"},
    "kind": {"type": "string", "minLength": 1, "examples": ["webhook.endpoint"]},
    "code": {"type": "string", "minLength": 1, "examples": ["shop", "hello"]},
}
HEADERS: dict[str, Schema] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX},
    ACTOR: {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH_MAX},
}
#: What is told on every answer to a call with a key.
RATE_HEADERS = {
    "RateLimit-Limit": {
        "description": "Calls that may come at once",
        "schema": {"type": "integer"},
    },
    "RateLimit-Remaining": {
        "description": "Calls that are left now",
        "schema": {"type": "integer"},
    },
}
ANY_FORM: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
ANY_TEXT: Schema = {"type": "string", "minLength": 1}
#: Where an id is that of a request.
_OF_REQUESTS = re.compile(r"/v1/(requests|dead-letters)/")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_TEXT = """Every side effect, done once and on record. Send `Authorization: Bearer gesta_…`; a key is bound to one tenant.

An answer of 202 means that the request is on disk. The same key with the same content is the same request, so every submit can be repeated.
What goes wrong is `application/problem+json`: `code` for programs, `detail` for people, `errors` with every field that is at fault."""


def describe(routes: Sequence[Route], flows: Mapping[str, Flow]) -> Schema:
    """The whole document."""
    schemas = Schemas(routes, flows)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(plain_path(route), {})[route.method.lower()] = _operation(
            route, schemas, flows, _links(route, routes)
        )
    for kind in {route.query for route in routes}:
        schemas.drop(kind)
    statuses = sorted({status for route in routes for status in problems_of(route)})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gesta",
            "version": version("gesta"),
            "summary": "Every side effect, done once and on record",
            "description": plain(_TEXT),
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {f"Problem{status}": _problem(status, schemas) for status in statuses},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": (
                        "An API key: `gesta key create`. Each operation names the scope that it"
                        f" needs: {', '.join(get_args(Scope))}; `admin` allows all."
                    ),
                }
            },
        },
    }


def plain_path(route: Route) -> str:
    """The path without the words that only the router understands."""
    return _PARAMETER.sub(r"{\1}", route.path)


def problems_of(route: Route) -> set[int]:
    """The statuses of everything that can go wrong on this route, its own and those that every
    route has.
    """
    found = {400, 422, 500, 503} | {status for status in route.problems if status >= 300}
    if route.scope is not None:
        found |= {401, 403, 429}
    if _PARAMETER.search(route.path):
        found.add(404)
    if has_body(route):
        found.add(415)
    if route.method != "GET":
        # Also where none is taken: it is read to be refused.
        found |= {408, 413}
    if route.method != "GET":
        found.add(507)
    return found


def has_body(route: Route) -> bool:
    return route.body is not None or route.takes != JSON


def _links(route: Route, routes: Sequence[Route]) -> Schema:
    """From a request that was submitted to everything that can be asked or decided about it."""
    if route.answer is not Submitted:
        return {}
    parameters = {"flow": "$response.body#/flow", "id": "$response.body#/id"}
    named = [
        one.name for one in routes if "{flow}/{id}" in one.path and _OF_REQUESTS.match(one.path)
    ]
    return {"links": {name: {"operationId": name, "parameters": parameters} for name in named}}


def _operation(route: Route, schemas: Schemas, flows: Mapping[str, Flow], links: Schema) -> Schema:
    told: Schema = {"operationId": route.name, "summary": route.summary, "tags": [route.tag]}
    if route.handler.__doc__:
        told["description"] = plain(route.handler.__doc__)
    told["parameters"] = _parameters(route, schemas)
    if has_body(route):
        told["requestBody"] = {
            "required": route.needs_body,
            "content": {route.takes: _body(route, schemas, flows)},
        }
    told["security"] = security_of(route)
    told["responses"] = {
        str(status): _success(route, schemas) | links for status in successes_of(route)
    }
    told["responses"] |= {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted(problems_of(route))
    }
    return told


def security_of(route: Route) -> list[dict[str, list[str]]]:
    if route.scope is None:
        return []
    return [{"bearer": [] if route.scope == "any" else [route.scope]}]


def successes_of(route: Route) -> list[int]:
    return [route.status, *(status for status in route.problems if status < 300)]


def _parameters(route: Route, schemas: Schemas) -> list[Schema]:
    found = []
    for name in _PARAMETER.findall(route.path):
        schema = PATH_PARTS.get(name, ANY_TEXT)
        if name == "id" and not _OF_REQUESTS.match(route.path):
            schema = ANY_TEXT
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if route.query is not Nothing:
        fields, required = schemas.fields(route.query)
        found += [
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": without_null(schema),
            }
            for name, schema in fields.items()
        ]
    headers = dict(route.headers)
    if route.scope is not None and route.method != "GET":
        headers[ACTOR] = "The person that the key acts for, for the record"
    found += [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": HEADERS.get(name, {"type": "string"}),
        }
        for name, text in headers.items()
    ]
    return found


def _body(route: Route, schemas: Schemas, flows: Mapping[str, Flow]) -> Schema:
    if route.body is None:
        return {
            "schema": (
                ANY_FORM
                if route.takes == "application/x-www-form-urlencoded"
                else {"type": "string"}
            )
        }
    told: Schema = {"schema": schemas.of(route.body)}
    examples = body_examples(route, flows)
    if examples:
        told["examples"] = {name: {"value": value} for name, value in examples.items()}
    return told


def body_examples(route: Route, flows: Mapping[str, Flow]) -> dict[str, Any]:
    """Bodies that can be tried as they are; a request for every flow there is."""
    requests = {name: submit_example(flow) for name, flow in sorted(flows.items())}
    if route.body is Submit:
        return requests
    if route.body is Batch:
        return {"batch": {"requests": list(requests.values())}} if requests else {}
    return {} if route.example is None else {"example": route.example}


def _success(route: Route, schemas: Schemas) -> Schema:
    told: Schema = {"description": route.summary}
    if route.scope is not None:
        told["headers"] = dict(RATE_HEADERS)
    if route.gives == JSON and route.answer is not None:
        told["content"] = {JSON: {"schema": schemas.of(route.answer)}}
    elif route.gives != JSON:
        content: Schema = {"schema": {"type": "string"}}
        if route.answer is not None:
            content["x-data"] = schemas.of(route.answer)
        told["content"] = {route.gives: content}
    return told


def _problem(status: int, schemas: Schemas) -> Schema:
    told: Schema = {
        "description": TITLES[status],
        "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemRepresentation)}},
    }
    if status in (429, 503, 507):
        told["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait",
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    if status == 401:
        told["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return told
