"""JSON Schemas of what the routes take and give, and of the payloads of the engine's flows, as
named components.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gesta.api_types.problem import ProblemRepresentation
from gesta.api_types.requests import Submit
from gesta.domain.ids import FLOW
from gesta.flows.flow import Flow
from gesta.flows.schemas import payload_schema
from gesta.http_api.requests import Batch
from gesta.http_api.route import Route

Schema = dict[str, Any]

PLACE = "#/components/schemas/"
_SUFFIX = "Representation"
_INSIDE = "#/$defs/"
FLOW_NAME = "FlowName"


class Schemas:
    """All components of one document: each type of the table by its name, each flow's payload by
    the flow's.
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
        """How to refer to a type of the table."""
        return dict(self._of[kind])

    def fields(self, kind: Any) -> tuple[dict[str, Schema], set[str]]:
        """The fields of a type, and which of them must be given."""
        schema = self._of[kind]
        whole = self.components[schema["$ref"].removeprefix(PLACE)] if "$ref" in schema else schema
        return whole.get("properties", {}), set(whole.get("required", ()))

    def drop(self, kind: Any) -> None:
        """A type that is written out elsewhere needs no component."""
        self.components.pop(self._of[kind].get("$ref", "").removeprefix(PLACE), None)

    def _add_flows(self, flows: Mapping[str, Flow]) -> None:
        """A request names its flow, and its payload is that flow's: a choice of one form for
        each.
        """
        told = {"enum": sorted(flows)} if flows else {"pattern": f"^{FLOW.pattern}$"}
        self.components[FLOW_NAME] = {
            "type": "string",
            "description": "A flow of this process.",
            **told,
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
        if Batch in self._of:
            items = self.components["Batch"]["properties"]["requests"]
            other = {
                "description": (
                    "Anything else gets the verdict `invalid`, and keeps no other from being"
                    " accepted."
                )
            }
            items["items"] = {"anyOf": [{"$ref": PLACE + "Submit"}, other]}


def payload_schemas(flow: Flow) -> dict[str, Schema]:
    """The payload under the flow's name, and the types inside it under names of their own."""
    whole = payload_schema(flow.payload)
    if "$ref" not in whole:
        return {flow.name: whole}
    own = whole["$ref"].removeprefix(_INSIDE)
    names = {name: flow.name if name == own else f"{flow.name}.{name}" for name in whole["$defs"]}
    return {
        names[name]: _tidied(one, {_INSIDE + name: PLACE + told for name, told in names.items()})
        for name, one in whole["$defs"].items()
    }


def submit_example(flow: Flow) -> Schema:
    """A request of this flow that can be tried."""
    return {"flow": flow.name, "payload": payload_example(flow), "key": "order-7"}


def payload_example(flow: Flow) -> Schema:
    """What the flow says; else the fields that must be given, each with the simplest value that its
    schema takes.
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
    """A docstring as one text."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def without_null(schema: Schema) -> Schema:
    """A parameter that is left out instead of being null."""
    kept = {name: value for name, value in schema.items() if name != "default" or value is not None}
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) != 1:
        return kept
    del kept["anyOf"]
    return {**choices[0], **kept}


def _tidied(schema: Any, places: Mapping[str, str]) -> Any:
    """Without the titles that only repeat names, with texts in one piece, and referring to where
    things are here.
    """
    if isinstance(schema, list):
        return [_tidied(one, places) for one in schema]
    if not isinstance(schema, dict):
        return schema
    told = {
        name: _tidied(value, places)
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }
    if isinstance(told.get("$ref"), str):
        told["$ref"] = places.get(told["$ref"], told["$ref"])
    if isinstance(told.get("description"), str):
        told["description"] = plain(told["description"])
    return told


def _short_names(components: Iterable[str]) -> dict[str, str]:
    """`RequestRepresentation` is `Request` to everybody who reads it, unless there is one already."""
    leased = set(components)
    return {
        name: short if (short := name.removesuffix(_SUFFIX)) and short not in leased else name
        for name in leased
    }
