"""Generates the OpenAPI 3.1 description from the table of routes and the flows of the process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, get_args

import msgspec

from gesta.admin.bulk import CONDITIONS
from gesta.api_types.bulk import Bulk
from gesta.api_types.keys import Scope
from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.requests import ACTOR, Submit, Submitted
from gesta.domain.ids import FLOW, KEY_LENGTH_MAX, REQUEST_ID, TENANT
from gesta.flows.flow import Flow
from gesta.flows.schemas import payload_schema
from gesta.http_api.problem import MEDIA_TYPE, TITLES
from gesta.http_api.requests import Batch
from gesta.http_api.route import JSON, Nothing, Route

Schema = dict[str, Any]
PLACE = "#/components/schemas/"
_SUFFIX = "Representation"
#: What msgspec calls `ListOf[KeyRepresentation]`.
_LIST = re.compile(r"^ListOf(?:Reasons)?_(\w+?)(?:Representation)?_$")
_INSIDE = "#/$defs/"
FLOW_NAME = "FlowName"
#: Path parameter → its schema. Others are any text without a slash.
PATH_PARTS: dict[str, Schema] = {
    "flow": {"$ref": PLACE + FLOW_NAME},
    "id": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"},
    "tenant": {"type": "string", "pattern": f"^{TENANT.pattern}$"},
    "kind": {"type": "string", "minLength": 1, "examples": ["webhook.endpoint"]},
    "code": {"type": "string", "minLength": 1, "examples": ["shop", "hello"]},
}
#: HTTP strips spaces at both ends of a header. Other characters than ASCII are sent as UTF-8.
_HEADER_TEXT = {"type": "string", "maxLength": KEY_LENGTH_MAX, "pattern": r"^[!-~]([ -~]*[!-~])?$"}
HEADERS: dict[str, Schema] = {
    "Idempotency-Key": _HEADER_TEXT,
    ACTOR: _HEADER_TEXT,
    "If-Match": {"type": "string", "pattern": r'^(\*|"[0-9]+")$', "examples": ['"7"']},
    "If-None-Match": {"type": "string", "const": "*"},
}
#: RFC 3339 with a time zone.
_MOMENT = (
    r"^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
#: Headers of every answer to a call with a key.
RATE_HEADERS = {
    "RateLimit-Limit": {
        "description": "Calls allowed in a burst",
        "schema": {"type": "integer"},
    },
    "RateLimit-Remaining": {
        "description": "Calls left now",
        "schema": {"type": "integer"},
    },
}
ANY_FORM: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
ANY_TEXT: Schema = {"type": "string", "minLength": 1}
#: Routes whose `id` is the id of a request.
_OF_REQUESTS = re.compile(r"/v1/(requests|dead-letters)/")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_TEXT = """Executes side effects once and keeps the record. Send `Authorization: Bearer gesta_…`; a
key belongs to one tenant.

An answer of 202 means that the request is on disk. The same key with the same content is the same
request, so every submit can be repeated. Errors are `application/problem+json`: `code` for
programs, `detail` for people, `errors` with every invalid field. Every list is `items` and `next`,
the `cursor` of the next page."""


def describe(routes: Sequence[Route], flows: Mapping[str, Flow]) -> Schema:
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
            "summary": "Executes side effects once and keeps the record",
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
    """The path without Starlette's converters."""
    return _PARAMETER.sub(r"{\1}", route.path)


def problems_of(route: Route) -> set[int]:
    """The statuses of all errors that the route can answer."""
    found = {400, 422, 500, 503} | {status for status in route.problems if status >= 300}
    if route.scope is not None:
        found |= {401, 403, 429}
    if _PARAMETER.search(route.path):
        found.add(404)
    if has_body(route):
        found.add(415)
    if route.method != "GET":
        # Also for routes without a body: one that is sent is read and refused.
        found |= {408, 413}
    if route.method != "GET":
        found.add(507)
    return found


def has_body(route: Route) -> bool:
    return route.body is not None or route.takes != JSON


def _links(route: Route, routes: Sequence[Route]) -> Schema:
    """Links from a submitted request to the operations about it."""
    if route.answer is not Submitted:
        return {}
    parameters = {"flow": "$response.body#/flow", "id": "$response.body#/id"}
    named = [one.name for one in routes if "/{id}" in one.path and _OF_REQUESTS.match(one.path)]
    return {"links": {name: {"operationId": name, "parameters": parameters} for name in named}}


def _operation(route: Route, schemas: Schemas, flows: Mapping[str, Flow], links: Schema) -> Schema:
    described: Schema = {"operationId": route.name, "summary": route.summary, "tags": [route.tag]}
    if route.handler.__doc__:
        described["description"] = plain(route.handler.__doc__)
    described["parameters"] = _parameters(route, schemas, flows)
    if has_body(route):
        described["requestBody"] = {
            "required": route.needs_body,
            "content": {route.takes: _body(route, schemas, flows)},
        }
    described["security"] = security_of(route)
    described["responses"] = {
        str(status): _success(route, schemas) | links for status in successes_of(route)
    }
    described["responses"] |= {
        str(status): {"$ref": f"#/components/responses/Problem{status}"}
        for status in sorted(problems_of(route))
    }
    return described


def security_of(route: Route) -> list[dict[str, list[str]]]:
    if route.scope is None:
        return []
    return [{"bearer": [] if route.scope == "any" else [route.scope]}]


def successes_of(route: Route) -> list[int]:
    return [route.status, *(status for status in route.problems if status < 300)]


def _parameters(route: Route, schemas: Schemas, flows: Mapping[str, Flow]) -> list[Schema]:
    found = []
    for name in _PARAMETER.findall(route.path):
        schema = PATH_PARTS.get(name, ANY_TEXT)
        if name == "id" and not _OF_REQUESTS.match(route.path):
            schema = ANY_TEXT
        if name == "flow" and route.tag == "suppression":
            schema = {"enum": sorted(one.name for one in flows.values() if one.addresses)}
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
        headers[ACTOR] = "The person who acts through the key; gesta records the name"
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
    described: Schema = {"schema": schemas.of(route.body)}
    examples = body_examples(route, flows)
    if examples:
        described["examples"] = {name: {"value": value} for name, value in examples.items()}
    return described


def body_examples(route: Route, flows: Mapping[str, Flow]) -> dict[str, Any]:
    """Example bodies that work unchanged; for submit, one for every flow."""
    requests = {name: submit_example(flow) for name, flow in sorted(flows.items())}
    if route.body is Submit:
        return requests
    if route.body is Batch:
        return {"batch": {"requests": list(requests.values())}} if requests else {}
    return {} if route.example is None else {"example": route.example}


def _success(route: Route, schemas: Schemas) -> Schema:
    described: Schema = {"description": route.summary}
    if route.scope is not None:
        described["headers"] = dict(RATE_HEADERS)
    if route.gives == JSON and route.answer is not None:
        described["content"] = {JSON: {"schema": schemas.of(route.answer)}}
    elif route.gives != JSON:
        content: Schema = {"schema": {"type": "string"}}
        if route.answer is not None:
            content["x-data"] = schemas.of(route.answer)
        described["content"] = {route.gives: content}
    return described


def _problem(status: int, schemas: Schemas) -> Schema:
    described: Schema = {
        "description": TITLES[status],
        "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemRepresentation)}},
    }
    if status in (429, 503, 507):
        described["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait",
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    if status == 401:
        described["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return described


class Schemas:
    """The components of one document: the types of the routes by name, and each flow's payload by
    the name of the flow.
    """

    def __init__(self, routes: Iterable[Route], flows: Mapping[str, Flow]) -> None:
        types: list[Any] = [ProblemRepresentation, Submit]
        for route in routes:
            types += [
                one
                for one in (route.body, route.answer, route.query)
                if one is not None and one not in types
            ]
        described, components = msgspec.json.schema_components(types, ref_template=PLACE + "{name}")
        names = _short_names(components)
        places = {PLACE + name: PLACE + short for name, short in names.items()}
        self._of = {
            kind: _tidied(schema, places) for kind, schema in zip(types, described, strict=True)
        }
        self.components: dict[str, Schema] = {
            names[name]: _tidied(schema, places) for name, schema in components.items()
        }
        self._add_flows(flows)

    def of(self, kind: Any) -> Schema:
        """A reference to a type of the routes."""
        return dict(self._of[kind])

    def fields(self, kind: Any) -> tuple[dict[str, Schema], set[str]]:
        """The fields of a type, and which of them are required."""
        schema = self._of[kind]
        whole = self.components[schema["$ref"].removeprefix(PLACE)] if "$ref" in schema else schema
        return whole.get("properties", {}), set(whole.get("required", ()))

    def drop(self, kind: Any) -> None:
        """Remove a component that is written out elsewhere."""
        self.components.pop(self._of[kind].get("$ref", "").removeprefix(PLACE), None)

    def _add_flows(self, flows: Mapping[str, Flow]) -> None:
        """Submit is a choice between one form for each flow, with the payload of that flow."""
        described = {"enum": sorted(flows)} if flows else {"pattern": f"^{FLOW.pattern}$"}
        self.components[FLOW_NAME] = {
            "type": "string",
            "description": "A flow of this process.",
            **described,
        }
        for flow in flows.values():
            self.components |= payload_schemas(flow)
        whole = self.components["Submit"]
        choices = {}
        for name, flow in sorted(flows.items()):
            properties = whole["properties"] | {
                "flow": {"const": name},
                "payload": {"$ref": PLACE + name},
            }
            choices[f"Submit.{name}"] = {
                **whole,
                "properties": properties,
                "description": f"A request of {name}.",
                "examples": [submit_example(flow)],
            }
        if choices:
            mapping = {name.removeprefix("Submit."): PLACE + name for name in choices}
            self.components["Submit"] = {
                "description": whole["description"],
                "oneOf": [{"$ref": PLACE + name} for name in choices],
                "discriminator": {"propertyName": "flow", "mapping": mapping},
            }
            self.components |= choices
        if Bulk in self._of:
            component, names = self.components["Bulk"], msgspec.structs.fields(Bulk)
            # Its description is for Python, too.
            for one in names:
                text = component["description"].replace(f"`{one.name}`", f"`{one.encode_name}`")
                component["description"] = text
            # A condition that is null does not count.
            component["anyOf"] = [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in (one.encode_name for one in names if one.name in CONDITIONS)
            ]
        if Batch in self._of:
            items = self.components["Batch"]["properties"]["requests"]
            other = {
                "description": (
                    "Anything else gets the verdict `invalid` and does not affect the others."
                )
            }
            items["items"] = {"anyOf": [{"$ref": PLACE + "Submit"}, other]}


def payload_schemas(flow: Flow) -> dict[str, Schema]:
    """The payload under the flow's name, and its inner types under names of their own."""
    whole = payload_schema(flow.payload)
    if "$ref" not in whole:
        return {flow.name: whole}
    own = whole["$ref"].removeprefix(_INSIDE)
    names = {name: flow.name if name == own else f"{flow.name}.{name}" for name in whole["$defs"]}
    return {
        names[name]: _tidied(one, {_INSIDE + name: PLACE + new for name, new in names.items()})
        for name, one in whole["$defs"].items()
    }


def submit_example(flow: Flow) -> Schema:
    """An example of a valid request of this flow."""
    return {"flow": flow.name, "payload": payload_example(flow), "key": "order-7"}


def payload_example(flow: Flow) -> Schema:
    """The flow's own example; otherwise its required fields, each with the simplest value that its
    schema allows.
    """
    if flow.example is not None:
        return dict(flow.example)
    schemas = payload_schemas(flow)
    made = _simplest(schemas[flow.name], schemas)
    return made if isinstance(made, dict) else {}


def _simplest(schema: Schema, known: Mapping[str, Schema]) -> Any:
    if "$ref" in schema:
        return _simplest(known[schema["$ref"].removeprefix(PLACE)], known)
    for word in ("examples", "enum"):
        if schema.get(word):
            return schema[word][0]
    if "const" in schema:
        return schema["const"]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _simplest(schema[word][0], known)
    match schema.get("type"):
        case "object":
            return {
                name: _simplest(schema["properties"][name], known)
                for name in schema.get("required", ())
            }
        case "array":
            return [
                _simplest(schema.get("items", {}), known) for _ in range(schema.get("minItems", 0))
            ]
        case "integer" | "number":
            return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return False
        case "string":
            text = {
                "date-time": "2030-01-31T09:00:00Z",
                "date": "2030-01-31",
                "uuid": "0190b6f2-7c1a-7000-8000-000000000000",
            }
            return text.get(
                schema.get("format", ""),
                "text".ljust(schema.get("minLength", 0), "t")[: schema.get("maxLength", 4)],
            )
        case _:
            return None


def plain(text: str) -> str:
    """A docstring as plain paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def without_null(schema: Schema) -> Schema:
    """The schema of an optional query parameter, which cannot be null."""
    kept = {name: value for name, value in schema.items() if name != "default" or value is not None}
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) != 1:
        return kept
    del kept["anyOf"]
    return {**choices[0], **kept}


def _tidied(schema: Any, places: Mapping[str, str]) -> Any:
    """Without titles that repeat names, with joined lines and with references to components."""
    if isinstance(schema, list):
        return [_tidied(one, places) for one in schema]
    if not isinstance(schema, dict):
        return schema
    described = {
        name: _tidied(value, places)
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }
    if isinstance(described.get("$ref"), str):
        described["$ref"] = places.get(described["$ref"], described["$ref"])
    if isinstance(described.get("description"), str):
        described["description"] = plain(described["description"])
    if described.get("format") == "date-time":
        described["pattern"] = _MOMENT
    return described


def _short_names(components: Iterable[str]) -> dict[str, str]:
    """`RequestRepresentation` is called `Request` and a list of them `RequestList`."""
    used = set(components)
    short = {name: _LIST.sub(r"\1List", name).removesuffix(_SUFFIX) for name in used}
    return {name: name if short[name] in used else short[name] for name in used}
