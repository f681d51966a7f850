"""/v1/config: what a tenant stores by code.

Secrets go in and never come out; an ETag keeps two people from undoing each other.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gesta.admin.representations import entity_representation
from gesta.api_types.config import ConfigKindRepresentation, Entities, EntityRepresentation, Kinds
from gesta.api_types.structs import PAGE_MAX, Asked
from gesta.errors import BadConfig, BadCursor
from gesta.flows.schemas import config_schema
from gesta.flows.validation import UNKNOWN_MAX
from gesta.http_api.problem import Problem
from gesta.http_api.route import Answer, Call, Route
from gesta.tenants.config import Entity

if TYPE_CHECKING:
    from gesta.engine.engine import Engine

#: An entity tag, or more with commas between: RFC 9110, 8.8.3.
_TAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_TAGS = re.compile(rf"{_TAG}(\s*,\s*{_TAG})*")
_IF_MATCH = {
    "If-Match": (
        "The ETag that was read; 412 if it was changed since. * means: whatever its version, it"
        " must be there"
    )
}
_IF_NONE_MATCH = {"If-None-Match": "* means: it must not be there yet"}


class Put(Asked, frozen=True):
    """All fields of the entity: what is left out gets its default, except secrets, which stay as
    they are.
    """

    fields: dict[str, Any]


class Putting(Asked, frozen=True):
    """`keep`: fields that are left out stay as they are."""

    keep: bool = False


class Choice(Asked, frozen=True):
    kind: str | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 50


async def list_config(call: Call) -> Answer:
    """The tenant's config, without its secrets."""
    asked: Choice = call.query
    after = ("", "") if asked.cursor is None else _opened(asked.cursor)
    entities = [
        one
        for one in await call.engine.admin.list_config(call.tenant)
        if asked.kind in (None, one.kind) and (one.kind, one.code) > after
    ]
    page = entities[: asked.limit]
    return Answer(
        Entities(
            items=[entity_representation(one) for one in page],
            next=_encrypted(page[-1]) if len(entities) > len(page) else None,
        )
    )


async def get_config(call: Call) -> Answer:
    """One entity, without its secrets. Its ETag is for If-Match."""
    try:
        entity = await call.engine.admin.get_config(*_named(call), tenant=call.tenant)
    except BadConfig as error:
        raise Problem(409, "unreadable", str(error)) from None
    return _shown(entity)


async def put_config(call: Call) -> Answer:
    """Store an entity; the next attempt uses it.

    A new secret overlaps with the one before it for a day.
    """
    kind, code = _named(call)
    expected = await _expected(call, may_be_new=True)
    fields: dict[str, Any] = call.body.fields
    if call.query.keep:
        fields = (
            await call.engine.admin.stored_beside(kind, code, fields, tenant=call.tenant) | fields
        )
    entity = await call.engine.admin.put_config(
        kind, code, fields, tenant=call.tenant, actor=call.actor, expected=expected
    )
    return _shown(entity)


async def delete_config(call: Call) -> Answer:
    """Remove an entity."""
    kind, code = _named(call)
    expected = await _expected(call, may_be_new=False)
    await call.engine.admin.delete_config(
        kind, code, tenant=call.tenant, actor=call.actor, expected=expected
    )
    return Answer(status=204)


async def list_config_kinds(call: Call) -> Answer:
    """What can be stored: the kinds that the flows of this process use, with the schema of their
    fields.
    """
    found = []
    for kind, body in sorted(call.pipeline.config.kinds.items()):
        schema = config_schema(body)
        own = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
        secrets = [name for name, field in own.items() if field.get("writeOnly")]
        found.append(
            ConfigKindRepresentation(
                kind,
                schema,
                secrets,
                sorted(flow.name for flow in call.engine.flows.values() if kind in flow.config),
            )
        )
    return Answer(Kinds(items=found))


async def inside_fields(
    engine: Engine, _tenant: str, path: Mapping[str, str], given: dict[str, Any]
) -> dict[str, str]:
    """What to do about a body that has the fields of the entity beside `fields`, or in its place.

    Of a kind that is unknown, nobody mends a body.
    """
    engine.pipeline.config.kind(path["kind"])
    beside = list(islice((name for name in given if name != "fields"), UNKNOWN_MAX))
    told = dict.fromkeys(beside, 'put it inside "fields"')
    if beside and "fields" not in given:
        told["fields"] = (
            'missing; the others are its fields, put them inside "fields": {"fields": {"name": …}}'
        )
    return told


def _named(call: Call) -> tuple[str, str]:
    return call.params["kind"], call.params["code"]


def _shown(entity: Entity) -> Answer:
    return Answer(entity_representation(entity), headers={"ETag": f'"{entity.version}"'})


async def _expected(call: Call, *, may_be_new: bool) -> int | None:
    """The version that the entity must be at, by the caller's headers; None: whatever it is.

    Raises where it is at none of those.
    """
    match, none_match = call.header("if-match"), call.header("if-none-match")
    if none_match is not None:
        if none_match != "*" or match is not None or not may_be_new:
            raise Problem(
                400, "bad_header", "If-None-Match is taken as * with PUT, and not beside If-Match"
            )
        return 0
    if match is None:
        return None
    if match != "*" and not _TAGS.fullmatch(match):
        raise Problem(
            400, "bad_header", 'If-Match is an ETag as it was answered, for instance "7", or *'
        )
    kind, code = _named(call)
    # What is true now must still be true when it is written: that is for the append to decide.
    version = await call.engine.admin.config_version(kind, code, tenant=call.tenant)
    if not version or (match != "*" and f'"{version}"' not in re.split(r"\s*,\s*", match)):
        stands = f"is at version {version}" if version else "is not there"
        told = f"config {kind}/{code} {stands}; read it again, and decide again"
        raise Problem(
            412, "version_conflict", told, headers={"ETag": f'"{version}"'} if version else None
        )
    return version


def _encrypted(entity: Entity) -> str:
    return urlsafe_b64encode(msgspec.json.encode((entity.kind, entity.code))).rstrip(b"=").decode()


def _opened(cursor: str) -> tuple[str, str]:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        return msgspec.json.decode(raw, type=tuple[str, str])
    except (ValueError, msgspec.DecodeError):
        raise BadCursor from None


_HERE = "/v1/config/{kind}/{code}"
_EXAMPLE = {
    "fields": {
        "url": "https://shop.example/hooks",
        "secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    }
}
ROUTES = [
    Route(
        "GET",
        "/v1/config",
        list_config,
        "read",
        "List config",
        "config",
        query=Choice,
        answer=Entities,
    ),
    Route(
        "GET",
        "/v1/config-kinds",
        list_config_kinds,
        "read",
        "What config there can be",
        "config",
        answer=Kinds,
    ),
    Route(
        "GET",
        _HERE,
        get_config,
        "read",
        "One entity of the config",
        "config",
        answer=EntityRepresentation,
        problems=(404, 409),
    ),
    Route(
        "PUT",
        _HERE,
        put_config,
        "admin",
        "Store an entity of the config",
        "config",
        query=Putting,
        body=Put,
        also=inside_fields,
        answer=EntityRepresentation,
        problems=(404, 412),
        headers=_IF_MATCH | _IF_NONE_MATCH,
        example=_EXAMPLE,
    ),
    Route(
        "DELETE",
        _HERE,
        delete_config,
        "admin",
        "Remove an entity from the config",
        "config",
        status=204,
        problems=(404, 412),
        headers=_IF_MATCH,
    ),
]
