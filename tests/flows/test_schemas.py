"""Schemas of what programs declare: valid ones fit, and what is secret or personal is marked."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from gesta import Payload, Personal, external
from gesta.flows.flow import ConfigBody, Secret
from gesta.flows.schemas import config_schema, payload_schema


class Colour(Enum):
    RED = "red"


class Child(msgspec.Struct):
    name: Personal[str]
    height: int = 0
    children: list[Child] = []


class Order(Payload, frozen=True, rename={"customer_mail": "mail"}):
    number: str
    customer_mail: Personal[str]
    children: list[Child] = msgspec.field(default_factory=list)
    colour: Colour = Colour.RED


class Account(ConfigBody, frozen=True):
    address: str
    token: Secret[str]
    spare: Secret[str] = ""


class Strange:
    """Nothing that JSON Schema has words for."""


class Own(Payload, frozen=True):
    thing: Strange


def _own(schema: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][name]["properties"]
    return found


def test_personal_fields_are_marked_by_the_names_that_travel_however_deep():
    schema = payload_schema(Order)
    assert schema["$ref"] == "#/$defs/Order"
    assert {name for name, field in _own(schema, "Order").items() if "x-personal" in field} == {
        "mail",
        "children",
    }
    assert {name for name, field in _own(schema, "Child").items() if "x-personal" in field} == {
        "name",
        "children",
    }


def test_secrets_are_write_only():
    fields = _own(config_schema(Account), "Account")
    assert {name for name, field in fields.items() if field.get("writeOnly")} == {"token", "spare"}


def test_a_type_without_a_schema_is_any_object():
    assert payload_schema(Own) == {"type": "object"}
    assert payload_schema(external("warehouse.pick", on_unknown="manual").payload) == {
        "type": "object"
    }
