"""A tenant's config, and templates made of it."""

from typing import Any

import msgspec

from gesta.api_types.structs import ListOf, Representation


class EntityRepresentation(Representation, frozen=True, omit_defaults=True):
    """Config without its secrets: of those it has the version, and of a URL neither user nor query.

    `version` counts the changes of this entity. `warnings` are about the change just made, for
    instance that it enables a disabled endpoint again.
    """

    kind: str
    code: str
    version: int
    fields: dict[str, Any]
    secrets: dict[str, int]
    warnings: list[str] = msgspec.field(default_factory=list)


class Entities(ListOf[EntityRepresentation], frozen=True):
    """By kind and code."""


class ConfigKindRepresentation(Representation, frozen=True):
    """`schema` is that of the fields of such an entity; what is `writeOnly` in it is a secret.

    `usedBy`: flows of this process.
    """

    kind: str
    schema: dict[str, Any]
    secrets: list[str]
    used_by: list[str]


class Kinds(ListOf[ConfigKindRepresentation], frozen=True):
    """Every kind of config that a flow of this process uses."""


class Previewed(Representation, frozen=True):
    """`code` and `version` name the template that was taken; `parts` has what it makes of the
    variables.
    """

    code: str
    version: int
    parts: dict[str, str]
