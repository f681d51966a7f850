"""A tenant's config, and previews of templates."""

from typing import Any

import msgspec

from gesta.api_types.structs import Representation


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


class ConfigKindRepresentation(Representation, frozen=True):
    """`schema` describes the fields of an entity of this kind; `writeOnly` fields are secrets.

    `usedBy`: the flows of this process that use it.
    """

    kind: str
    schema: dict[str, Any]
    secrets: list[str]
    used_by: list[str]


class Previewed(Representation, frozen=True):
    """`code` and `version` name the template that was used; `parts` has the rendered texts."""

    code: str
    version: int
    parts: dict[str, str]
